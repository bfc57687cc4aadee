"""The console: what people touch. One noun per file; everything enters through `remit.console.main`."""
