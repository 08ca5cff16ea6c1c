"""Fused accelerator paths, each with a plain reference elsewhere that tests run."""
