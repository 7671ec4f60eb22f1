"""Known mistakes of techniques, a file a technique."""
