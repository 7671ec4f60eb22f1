"""Local SGD and DiLoCo: each rank takes steps alone, and after some of them all ranks take an outer step together."""
