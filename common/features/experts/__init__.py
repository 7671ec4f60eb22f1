"""Experts: each token takes some of the mlps of its block, which a router chooses; no token is dropped."""
