"""The cases of benchmarks/steering.py, a module each: `arguments(parser)` and `shown(options)`, its figures and picture."""
