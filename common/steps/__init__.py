"""The step log: what the steps of a run were, in one record that everything judges."""
