"""Known mistakes from public threads, each as arithmetic on what two records hold of the step that differs."""
