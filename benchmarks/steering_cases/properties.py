"""Rewards of molecules for `unnoise sample --reward`: a number for each string, 0 where it is no molecule.  Needs rdkit."""

from typing import Any

from rdkit import Chem, RDLogger
from rdkit.Chem import QED, Crippen

RDLogger.DisableLog("rdApp.*")


def molecule(text: str) -> Any | None:
    """None where a string is no molecule, or an empty one."""
    return (Chem.MolFromSmiles(text) or None) if text else None


def valid(texts: list[str]) -> list[float]:
    """1 for a molecule."""
    return [float(molecule(text) is not None) for text in texts]


def qed(texts: list[str]) -> list[float]:
    """The quantitative estimate of drug-likeness, from 0 to 1."""
    found = [molecule(text) for text in texts]
    return [0.0 if one is None else float(QED.qed(one)) for one in found]


def logp(texts: list[str]) -> list[float]:
    """The octanol-water coefficient by atoms (Crippen), -1 ... 5 brought to 0 ... 1; 0 for what is no molecule."""
    found = [molecule(text) for text in texts]
    return [0.0 if one is None else min(1.0, max(0.0, (Crippen.MolLogP(one) + 1) / 6)) for one in found]
