"""The encoding of a table's text: that of its byte-order mark, or the one that is given, or one of Western Europe."""

from unnoise.data.base import BadData

MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
FALLBACK = ("cp1252", "latin-1")


def is_plain(encoding: str) -> bool:
    return encoding.lower() in ("utf-8", "utf8", "utf-8-sig")


def decoded(raw: bytes, where: str, encoding: str) -> tuple[str, str]:
    """The text, and the encoding that it was in."""
    marked = next((name for mark, name in MARKS if raw.startswith(mark)), None)
    telling = is_plain(encoding) or (
        encoding.lower() == "utf-16" and b"\0" not in raw
    )  # a mark, or that there is none, says it better
    found = (marked or "utf-8") if telling else encoding
    strange = sum(byte < 9 or 13 < byte < 32 for byte in raw[:4096])
    if is_plain(found) and (b"\0" in raw or strange > 0.02 * len(raw[:4096])):
        raise BadData(
            f"{where}: holds binary data, not text: pass a CSV, TSV or Parquet file, or set the encoding (utf-16?)"
        )
    for name in (found, *FALLBACK) if is_plain(found) else (found,):
        try:
            return raw.decode(name), name
        except UnicodeDecodeError as error:
            problem = (
                f"{where}: byte {error.start} (0x{raw[error.start]:02x}) is not {name}: set the encoding, such as latin-1"
            )
        except LookupError as error:
            raise BadData(f"{where}: there is no encoding '{name}': use one such as utf-8 or latin-1") from error
    raise BadData(problem)
