"""How the seconds of steps are spent: the parts of each row's step, and the sentences about them."""
