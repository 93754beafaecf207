"""Injected faults: held and lost operations, proxies that break connections, disabled guards."""
