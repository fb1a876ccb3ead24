"""History subscriptions: `$asof/<instant>/<filter>` and `$replay/<from>[/<to>]/<filter>` (docs/history.md)."""
