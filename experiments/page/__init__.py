"""The report: one page of HTML, made from run directories."""
