"""What benchmarks/gpu.py measures with."""
