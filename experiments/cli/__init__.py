"""What all commands share: parsers, and how an error ends a command."""
