"""How far the worker is: its progress files, and the watchdog that looks at them."""
