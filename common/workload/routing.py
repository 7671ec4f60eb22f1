"""What rows that send tokens to their experts measure of an observed step, since only a router decides it.

The tokens that experts of a rank took, in all and of each block, by its number behind a slash; and the tokens of a rank that went
to an expert of another rank, once for each such expert.
"""

TAKEN, AWAY = "expert_tokens", "tokens_away"
