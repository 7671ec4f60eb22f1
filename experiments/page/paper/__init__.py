"""Figures for a paper: laid out at the width of a column, as SVG and as PDF."""
