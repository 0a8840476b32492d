package server

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/limit"
)

// A Config configures a Server. If only Data is set, the hub serves programs on the same machine.
// The zero value of a field means its default. Errors about a field start with its name, as in
// "Config.Listen: address already in use".
type Config struct {
	Listen    string // address (HOST:PORT) for users; default 127.0.0.1:8080
	OpsListen string // address (HOST:PORT) for health, metrics, profiles and backups; default: none of them is served
	BaseURL   string // public URL (http or https) of the hub; required with RedisURL, and if Listen is not a loopback address; default: http:// (https:// with TLS) and the address

	// Paths of the PEM files of the TLS certificate for Listen, with its chain, and of its key.
	// Changes of the files take effect. Default: no TLS.
	TLSCertFile, TLSKeyFile string

	AuditLog string // path of the audit log, or trail.Stderr; default: none

	Data        string // directory of the change memory, created if it does not exist; required without RedisURL
	DiskReserve uint64 // free disk space in bytes below which the hub accepts no changes; default 64 MiB

	RedisURL     string        // URL of a Redis for the change memory of several hubs; Data is then unused; default: none
	RedisTimeout time.Duration // timeout for connecting to Redis, and for each response of Redis; default 5 s
	RedisWait    int           // number of Redis replicas that must have a change or a WebSub request before the hub responds; default 0
	StartTimeout time.Duration // how long Run waits for Redis; default 1 minute

	NATSURL         string // comma-separated URLs of NATS servers for announcing changes to the other hubs, which otherwise notice them up to 2 s later; default: none
	NATSCredentials string // path of a NATS credentials file; default: none
	NATSRootCAs     string // path of a PEM file with CA certificates to trust for NATS; default: the system's
	Prefix          string // prefix of Redis keys and NATS subjects; default "rshub"

	Sets           []string            // names of the sets that accept changes; default: all, and the first publish creates a set
	DescribedBy    string              // URL of a document that describes everything the hub serves; default: none
	ChangeListSize int                 // number of changes per Change List of new sets, at most changelog.MaxListSize; default 10,000
	Retention      changelog.Retention // Change Lists to remove; default: none

	NoInventory          bool          // whether the hub has no inventories; hubs with the same memory should use the same value
	NoPoll               bool          // whether the hub polls no sources, neither at intervals nor after pings
	ResourceListInterval time.Duration // interval for renewing the Resource List of a set that has changed; default 1 hour
	MaxBaselines         int           // maximum number of baselines in progress; default 128
	MaxAudits            int           // maximum number of audits and lists of resources in progress; default 128

	Callers  access.Authenticator // authenticates callers; default: everyone has all rights
	Insecure bool                 // whether the hub may listen beyond loopback without Callers, so that anyone may publish and read backups
	Hosts    []string             // additional host names of the hub, in lower case, without ports; *: any; default: only the name in BaseURL
	Origins  []string             // origins of web pages that may use the hub, in lower case, such as https://example.org; *: all origins; default: only the hub's own

	// Limits of each caller with a token, and of each address of callers without one. Unset kinds
	// have defaults. Operators are exempt. Each hub counts separately.
	CallerLimits, AddressLimits limit.Limits

	SetQuota int64 // maximum size of a set in bytes; 0 means four fifths of the store's capacity if it is known, negative no limit

	TrustedProxies []netip.Prefix // networks of proxies whose X-Forwarded-For is trusted; default: none

	CallbackAllow    []netip.Prefix // networks where callbacks are allowed in addition to public addresses; default: none
	CallbackCAs      *x509.CertPool // CA certificates to trust for callbacks; default: the system's
	CallbackTimeout  time.Duration  // timeout of a delivery, from the connection to the response; default 15 s
	CallbackRequests int            // maximum number of requests for new subscriptions per minute for callbacks at one host; default 1,000

	LeaseMin time.Duration // minimum lease of a WebSub subscription; default 300 s

	SecretKeys string // keys that encrypt the stored secrets of WebSub subscriptions: ID:BASE64, separated by commas or lines; the first encrypts, all decrypt; default: secrets are stored in clear

	MaxBody      int64         // maximum body of a publish in bytes, compressed and decompressed; NDJSON streams may be longer; default 50 MiB
	Heartbeat    time.Duration // interval of heartbeats on connections that follow changes; default 30 s
	WriteTimeout time.Duration // time after which the connection of a client that accepts no data is closed; default 15 s
	DrainDelay   time.Duration // how long a stopping hub serves while it reports not ready, so that load balancers notice; default 0
	Grace        time.Duration // how long a stopping hub then waits for connections to end; negative means no wait; default 25 s

	// Logger receives the log of the hub. By default it is discarded. A change memory on disk ends the
	// process if a write fails; without a Logger, that is written to standard error.
	Logger  *slog.Logger
	Version string // version in the log, the page and the metrics

	// Metrics is the registry of the hub's metrics, which hubs cannot share. The default is a new
	// registry with metrics of the process.
	Metrics *prometheus.Registry
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:8080")
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	c.StartTimeout = cmp.Or(c.StartTimeout, time.Minute)
	c.Prefix = cmp.Or(c.Prefix, "rshub")
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 15*time.Second)
	c.Grace = cmp.Or(c.Grace, 25*time.Second)
	return c
}

// check returns an error with all problems of c.
func (c *Config) check() error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("Config."+field+": "+format, args...))
	}
	c.checkAddresses(refuse)
	if _, err := c.secretKeys(); err != nil {
		refuse("SecretKeys", "%w", err)
	}
	if c.Data == "" && c.RedisURL == "" {
		refuse("Data", "got neither Data nor Config.RedisURL, want one for the change memory")
	}
	if c.NATSURL != "" && c.RedisURL == "" {
		refuse("NATSURL", "requires Config.RedisURL, because only hubs that share a Redis announce changes")
	}
	for _, set := range c.Sets {
		if err := feed.CheckSet(set); err != nil {
			refuse("Sets", "%w", err)
		}
	}
	if c.ChangeListSize < 0 || c.ChangeListSize > changelog.MaxListSize {
		refuse("ChangeListSize", "got %d, want 1 to %d", c.ChangeListSize, changelog.MaxListSize)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"RedisTimeout", c.RedisTimeout}, {"StartTimeout", c.StartTimeout}, {"CallbackTimeout", c.CallbackTimeout},
		{"LeaseMin", c.LeaseMin}, {"ResourceListInterval", c.ResourceListInterval}, {"Heartbeat", c.Heartbeat}, {"WriteTimeout", c.WriteTimeout},
	} {
		if d.value < 0 {
			refuse(d.field, "got %v, want no negative value", d.value)
		}
	}
	for _, n := range []struct {
		field string
		value int64
	}{
		{"RedisWait", int64(c.RedisWait)}, {"MaxBody", c.MaxBody},
		{"MaxBaselines", int64(c.MaxBaselines)}, {"MaxAudits", int64(c.MaxAudits)}, {"CallbackRequests", int64(c.CallbackRequests)},
	} {
		if n.value < 0 {
			refuse(n.field, "got %d, want no negative value", n.value)
		}
	}
	return errors.Join(errs...)
}

// CheckSecretKeys returns nil if text is a valid Config.SecretKeys.
func CheckSecretKeys(text string) error {
	_, err := subscription.ParseKeys(text)
	return err
}

// secretKeys returns the keys in SecretKeys, or nil if it is empty.
func (c *Config) secretKeys() (*subscription.Keys, error) {
	if c.SecretKeys == "" {
		return nil, nil
	}
	return subscription.ParseKeys(c.SecretKeys)
}

// checkAddresses refuses addresses that the hub cannot or should not listen on, and an invalid
// BaseURL.
func (c *Config) checkAddresses(refuse func(field, format string, args ...any)) {
	for _, a := range []struct{ field, address string }{{"Listen", c.Listen}, {"OpsListen", c.OpsListen}} {
		host, _, err := net.SplitHostPort(a.address)
		switch {
		case a.address == "": // only OpsListen may be empty
		case err != nil:
			refuse(a.field, "want HOST:PORT: %w", err)
		case !Loopback(host) && c.Callers == nil && !c.Insecure:
			refuse(a.field, "got %s, want a loopback address without Callers or Insecure", a.address)
		case !Loopback(host) && a.field == "Listen" && c.BaseURL == "":
			refuse("BaseURL", "got none, want one because %s is not a loopback address", a.address)
		}
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		refuse("TLSCertFile", "got only one of TLSCertFile and Config.TLSKeyFile, want both")
	}
	if c.TLSCertFile != "" && strings.HasPrefix(strings.ToLower(c.BaseURL), "http:") {
		refuse("BaseURL", "got %s, want https because of Config.TLSCertFile", c.BaseURL)
	}
	switch u, err := url.Parse(c.BaseURL); {
	case c.BaseURL == "" && c.RedisURL != "":
		refuse("BaseURL", "got none, want the common URL of the hubs because of Config.RedisURL")
	case c.BaseURL == "":
	case err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		refuse("BaseURL", "want a URL such as https://hub.example.org")
	}
}

// memory returns the location of the change memory for the log.
func (c *Config) memory() string {
	if c.RedisURL != "" {
		return "Redis, with the prefix " + c.Prefix
	}
	return c.Data
}

// Loopback reports whether host is a loopback address or localhost. It resolves no other names,
// because their addresses may change.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
