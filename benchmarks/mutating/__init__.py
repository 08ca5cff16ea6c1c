"""The parts of `mutants.py`: what is changed, which tests run it, and whether one of them fails."""
