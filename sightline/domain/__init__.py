"""Pure and synchronous rules: machines, metering, geofence, pricing, money. Imports nothing but itself."""
