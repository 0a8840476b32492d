// Package alerts holds the alert rules and the dashboard against what hubs say of
// themselves. It is a package of its own, because the parser of Prometheus takes long to
// compile.
package alerts
