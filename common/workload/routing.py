"""What strategies that send tokens to experts measure in an observed step, since it depends on the router.

These are the number of tokens that the experts of a rank took, in total and for each block (after a slash, the block's number),
and the number of a rank's tokens that went to experts of other ranks, counted once for each such expert.
"""

TAKEN, AWAY = "expert_tokens", "tokens_away"
