"""Fused accelerator paths, each with a plain reference that tests run: elsewhere, or beside it."""
