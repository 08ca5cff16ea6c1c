"""The demo's page: what was trained, how good it is, and pictures."""

import html
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from unnoise.cli import noising_picture
from unnoise.data.arrays import picture
from unnoise.training.metrics import read_metrics

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1, h2 { font-weight: 600; } table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .25rem .75rem; text-align: left; border-bottom: 1px solid #ddd; font-size: .9rem; }
.pair { display: flex; gap: 2rem; flex-wrap: wrap; } figure { margin: 0; } .wide { overflow-x: auto; }
figcaption { color: #666; font-size: .85rem; } img { max-width: 100%; }
"""


def write_page(folder: Path, results: list[dict[str, Any]], seed: int) -> Path:
    rows = "".join(
        f"<tr><td>{html.escape(r['name'])}</td><td>{r['bound']:.2f} ± {r['standard_error']:.2f}</td>"
        f"<td>{r['baseline']:.2f}</td><td>{html.escape(r['against'])}</td><td>{r['outcome'].step} steps, "
        f"{r['outcome'].seconds:.0f} s</td></tr>"
        for r in results
    )
    parts = [
        "<h1>unnoise: three small models</h1>",
        "<p>Nats per held-out example, lower is better. A model's figure is its bound, at least its -log-likelihood.</p>",
        "<table><tr><th>model</th><th>bound</th><th>baseline</th><th>which is</th><th>training</th></tr>"
        + rows
        + "</table>",
    ]
    for result in results:
        parts.append(f"<h2>{html.escape(result['name'].capitalize())}</h2>")
        parts.append(_table(result) if isinstance(result["real"], dict) else _digits(result))
        parts.append(f"<p>{_image(_curve(result), 'the bound on held-out rows while training')}</p>")
    noising_picture.draw(folder / "noising.png", seed)
    parts.append(
        "<h2>Noising and exact denoising</h2>" + _image((folder / "noising.png").read_bytes(), "two spaces, one theory")
    )
    page = folder / "index.html"
    page.write_text(
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>unnoise demo</title><style>{STYLE}</style>"
        f"<body>{''.join(parts)}</body></html>\n",
        encoding="utf-8",
    )
    return page


def _image(png: bytes, caption: str) -> str:
    data = b64encode(png).decode()
    return f"<figure><img src='data:image/png;base64,{data}' alt='{caption}'><figcaption>{caption}</figcaption></figure>"


def _digits(result: dict[str, Any]) -> str:
    form = result["format"]
    real, new = (picture(form.values(x[:64]), form) for x in (result["real"], result["samples"]))
    return f"<div class='pair'>{_image(real, 'held-out digits')}{_image(new, 'samples')}</div>"


def _table(result: dict[str, Any]) -> str:
    form = result["format"]
    out = []
    for caption, x in (("held-out rows", result["real"]), ("samples", result["samples"])):
        frame = form.frame(x).head(8)
        head = "".join(f"<th>{html.escape(str(name))}</th>" for name in frame.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(v))}</td>" for v in row) + "</tr>" for row in frame.to_numpy()
        )
        out.append(f"<p>{caption}</p><div class='wide'><table><tr>{head}</tr>{body}</table></div>")
    return "".join(out)


def _curve(result: dict[str, Any]) -> bytes:
    import matplotlib.pyplot as plt

    lines = [line for line in read_metrics(result["run"].metrics) if "validation_bound" in line]
    figure, axis = plt.subplots(figsize=(6, 2.4), constrained_layout=True)
    axis.plot([line["step"] for line in lines], [line["validation_bound"] for line in lines], marker="o", ms=3)
    axis.axhline(result["baseline"], color="grey", ls="--", lw=1)
    axis.text(lines[-1]["step"], result["baseline"], result["against"], ha="right", va="bottom", fontsize=8, color="grey")
    shown = [line["validation_bound"] for line in lines[len(lines) // 4 :]] + [result["baseline"]]
    margin = 0.1 * (max(shown) - min(shown) + 1e-9)
    axis.set_ylim(min(shown) - margin, np.max(shown) + 2 * margin)
    axis.set_xlabel("steps")
    axis.set_ylabel("nats per example")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    plt.close(figure)
    return buffer.getvalue()
