"""llama.cpp and llama-swap: their command lines, their binaries, and the local stack as processes."""
