"""HTTP/2: connections by Hypercorn, their limits, and the application behind them."""
