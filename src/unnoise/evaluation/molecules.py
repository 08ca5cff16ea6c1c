"""Molecules as SMILES strings: how many are valid, different, new.

    validity     share of strings that RDKit reads as a molecule
    uniqueness   share of the valid ones that differ, as canonical strings
    novelty      share of these that are no molecule of the training rows

RDKit decides what is valid and which strings are one molecule.  Without it the last two are of strings.
"""

from typing import Any

from tqdm import tqdm

NEEDED = "validity needs RDKit: pip install rdkit"


def rdkit_chem() -> Any | None:
    """RDKit's module of molecules, quiet; None where it is not installed."""
    try:
        from rdkit import Chem, RDLogger
    except ImportError:
        return None
    RDLogger.DisableLog("rdApp.*")
    return Chem


def canonical(text: str, chem: Any) -> str | None:
    """The canonical string of a molecule; None where there is none."""
    molecule = chem.MolFromSmiles(text) if text else None
    return None if molecule is None else chem.MolToSmiles(molecule)


class MoleculeScores:
    """The figures of strings against one set of training strings."""

    def __init__(self, train: list[str], progress: bool = False):
        self.chem = rdkit_chem()
        texts = tqdm(train, unit="row", desc="canonical training rows", disable=not progress, leave=False)
        self.known = set(train) if self.chem is None else {canonical(text, self.chem) for text in texts}

    def score(self, texts: list[str]) -> dict[str, Any]:
        found = list(texts) if self.chem is None else [canonical(text, self.chem) for text in texts]
        valid = [text for text in found if text]
        different = set(valid)
        return {
            "validity": None if self.chem is None else len(valid) / len(texts),
            "uniqueness": len(different) / len(valid) if valid else None,
            "novelty": len(different - self.known) / len(different) if different else None,
        }
