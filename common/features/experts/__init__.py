"""Experts: each token takes some of the mlps of its block, which a router chooses; all of their tokens, none is dropped."""
