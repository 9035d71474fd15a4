"""One self-contained page that shows what runs did."""
