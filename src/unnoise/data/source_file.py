"""Which file a run was trained on, and whether it still is that file.

Rows are held out by their place, so a file that lost a row would pass trained rows off as held out.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from unnoise.data import folders
from unnoise.data.files import read_bytes, write_bytes

NAME = "data.json"  # in the run's folder


@dataclass(frozen=True)
class SourceFile:
    path: Path
    digest: str | None = None  # of the content, unpacked, of a folder with the names; None where it was not noted

    @classmethod
    def of(cls, path: Path) -> "SourceFile":
        own = folders.digest(path) if path.is_dir() else hashlib.sha256(read_bytes(path)).hexdigest()
        return cls(path.resolve(), own)

    @classmethod
    def load(cls, folder: Path) -> "SourceFile":
        try:
            data = json.loads((folder / NAME).read_text())
            return cls(Path(data["path"]), data.get("digest"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{folder / NAME} does not name the file that the run was trained on: pass it") from error

    def save(self, folder: Path) -> None:
        write_bytes(folder / NAME, (json.dumps({"path": str(self.path), "digest": self.digest}) + "\n").encode())

    def still_at(self, path: Path) -> bool:
        """Whether the content at a path is what it was, as far as that is known."""
        return self.digest is None or self.digest == SourceFile.of(path).digest
