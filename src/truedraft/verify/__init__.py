"""The acceptance rules: which of the drafted tokens become text, so that the text is the target's own."""
