package limit

import "time"

// DefaultCaller returns the default limits of a caller, which is a client known to the operator.
func DefaultCaller() Limits {
	return Limits{
		Requests: perMinute(60_000), Publishes: perMinute(60_000), Changes: perMinute(6_000_000), Bytes: perMinute(6 << 30),
		Sets: perHour(1000), Connections: {Most: 10_000}, Follows: {Most: 10_000},
	}
}

// DefaultAddress returns the default limits of an address, which may be many people behind one router,
// or an attacker.
func DefaultAddress() Limits {
	return Limits{
		Requests: perMinute(6000), Publishes: perMinute(600), Changes: perMinute(600_000), Bytes: perMinute(600 << 20),
		Sets: perHour(10), Connections: {Most: 1000}, Follows: {Most: 1000},
	}
}

func perMinute(n int64) Limit { return Limit{Most: n, Within: time.Minute} }
func perHour(n int64) Limit   { return Limit{Most: n, Within: time.Hour} }
