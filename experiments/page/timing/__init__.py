"""What the seconds of steps go to: parts of each row's step, and the sentences on them."""
