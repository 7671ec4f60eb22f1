"""What the recorders of both frameworks need to know about Keras: layers, optimizers, and the layout of weights."""
