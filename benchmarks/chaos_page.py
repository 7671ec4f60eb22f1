def write_page(x): pass
