"""What strategies that send tokens to experts measure in an observed step, since only the router decides it.

It is the number of tokens that the experts of a rank took, in all and for each block, whose number follows a slash; and the
number of a rank's tokens that went to experts of other ranks, counted once for each such expert.
"""

TAKEN, AWAY = "expert_tokens", "tokens_away"
