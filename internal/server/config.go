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

// A Config configures a Server. If only Data is set, the hub serves programs on
// the same machine. The zero value of a field means its default. An error about a
// field begins with Config and the field's name, as in "Config.Listen: address
// already in use".
type Config struct {
	Listen    string // address (HOST:PORT) that the hub listens on for users; default 127.0.0.1:8080
	OpsListen string // address (HOST:PORT) for health, metrics, profiles and backups; default: the hub serves none of them
	BaseURL   string // URL (http or https) by which others reach the hub; required with RedisURL, and if Listen is beyond loopback; default: http:// (with TLS https://) and the address

	// Paths of the files (PEM) of the TLS certificate for Listen, with its chain, and of its
	// key. The hub reads them anew when they change. Default: no TLS.
	TLSCertFile, TLSKeyFile string

	AuditLog string // path of the audit log, or trail.Stderr; default: none

	Data        string // directory of the change memory, made if it does not exist; required without RedisURL
	DiskReserve uint64 // with less free disk space than this, in bytes, the hub takes no changes; default 64 MiB

	RedisURL     string        // URL of a Redis that keeps the change memory, for several hubs; the hub then does not use Data; default: none
	RedisTimeout time.Duration // how long the hub waits for a connection to Redis, and for each answer from Redis; default 5 s
	RedisWait    int           // number of Redis replicas that must have a change, or a WebSub request, before the hub answers it; default 0
	StartTimeout time.Duration // how long Run waits for Redis; default 1 minute

	NATSURL         string // URLs of NATS servers, separated by commas, to announce changes to the other hubs; default: none; they then find changes up to 2 s later
	NATSCredentials string // path of a NATS credentials file; default: none
	NATSRootCAs     string // path of a file with the CA certificates (PEM) to trust for NATS, in place of the system's; default: the system's
	Prefix          string // beginning of every Redis key and NATS subject; default "rshub"

	Sets           []string            // names of the sets that take changes; default: every set does, and the first publish makes it
	DescribedBy    string              // URL of a document about all that the hub serves; default: none
	ChangeListSize int                 // number of changes in one Change List, at most changelog.MaxListSize; only for new sets; default 10,000
	Retention      changelog.Retention // which Change Lists the hub removes; default: none

	NoInventory          bool          // the hub keeps no inventories: what sets hold now; all hubs of a memory should do the same
	NoPoll               bool          // the hub looks at no source of a set, neither now and then nor when it pings
	ResourceListInterval time.Duration // how often the Resource List of a set is renewed, if anything changed; default 1 hour
	MaxBaselines         int           // how many baselines may be read at the same time; default 128
	MaxAudits            int           // how many audits and lists of resources may be read at the same time; default 128

	Callers  access.Authenticator // who may do what; default: everybody may do everything
	Insecure bool                 // the hub may listen beyond loopback without Callers; anyone may then publish, and read a backup
	Hosts    []string             // names that the hub has besides that of BaseURL, in lower case, without ports; *: any; default: none
	Origins  []string             // origins of web pages that may use the hub, in lower case, such as https://example.org; *: all origins; default: only the hub's own

	// How much each caller with a token, and each address without one, may use. A kind that is
	// not set has a default. The limits do not count for callers who may operate the hub. Each
	// hub counts by itself.
	CallerLimits, AddressLimits limit.Limits

	SetQuota int64 // how many bytes one set may keep; 0: four fifths of what the store has room for, if that is known; negative: any number

	TrustedProxies []netip.Prefix // networks of proxies that are believed when they say, in X-Forwarded-For, who the client is; default: none

	CallbackAllow    []netip.Prefix // networks that callbacks may be in, besides public addresses; default: none
	CallbackCAs      *x509.CertPool // CA certificates to trust for callbacks; default: the system's
	CallbackTimeout  time.Duration  // how long one delivery may take, from the connection to the answer; default 15 s
	CallbackRequests int            // how many requests for new subscriptions the hub takes in a minute for callbacks at one host, all ports together; default 1,000

	LeaseMin time.Duration // shortest lease of a WebSub subscription; default 300 s

	SecretKeys string // keys that encrypt the stored secrets of WebSub subscriptions: ID:BASE64, separated by commas or lines; the first encrypts, all decrypt; default: secrets are stored in clear

	MaxBody      int64         // largest body of a publish in bytes, compressed and decompressed; an NDJSON stream may be longer; default 50 MiB
	Heartbeat    time.Duration // time between signs of life on a connection that follows changes; default 30 s
	WriteTimeout time.Duration // the hub closes the connection of a client that takes no data for this long; default 15 s
	DrainDelay   time.Duration // how long a hub that is told to stop still serves, but says that it is not ready, so that load balancers notice; default 0
	Grace        time.Duration // how long the hub then waits for its connections to end, before it cuts them; negative: it does not wait; default 25 s

	// Logger gets the log of the hub. Default: discard. A change memory on the disk
	// ends the process when a write fails. Without a Logger, the last line of the log
	// then goes to standard error.
	Logger  *slog.Logger
	Version string // version that the log, the page and the metrics show

	// Metrics is the registry for the hub's metrics. Two hubs cannot share one.
	// Default: a new registry, which also measures the process.
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

// check returns an error that names everything that is wrong with c.
func (c *Config) check() error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("Config."+field+" "+format, args...))
	}
	c.checkAddresses(refuse)
	if _, err := c.secretKeys(); err != nil {
		refuse("SecretKeys", "cannot be used: %w", err)
	}
	if c.Data == "" && c.RedisURL == "" {
		refuse("Data", "is empty, and so is Config.RedisURL: there is no place for the change memory")
	}
	if c.NATSURL != "" && c.RedisURL == "" {
		refuse("NATSURL", "needs Config.RedisURL: only hubs that share a Redis announce changes to each other")
	}
	for _, set := range c.Sets {
		if err := feed.CheckSet(set); err != nil {
			refuse("Sets", "has a wrong name: %w", err)
		}
	}
	if c.ChangeListSize < 0 || c.ChangeListSize > changelog.MaxListSize {
		refuse("ChangeListSize", "is %d; it is 1 to %d", c.ChangeListSize, changelog.MaxListSize)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"RedisTimeout", c.RedisTimeout}, {"StartTimeout", c.StartTimeout}, {"CallbackTimeout", c.CallbackTimeout},
		{"LeaseMin", c.LeaseMin}, {"ResourceListInterval", c.ResourceListInterval}, {"Heartbeat", c.Heartbeat}, {"WriteTimeout", c.WriteTimeout},
	} {
		if d.value < 0 {
			refuse(d.field, "is %v; it must not be negative", d.value)
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
			refuse(n.field, "is %d; it must not be negative", n.value)
		}
	}
	return errors.Join(errs...)
}

// CheckSecretKeys returns nil if a text can be Config.SecretKeys.
func CheckSecretKeys(text string) error {
	_, err := subscription.ParseKeys(text)
	return err
}

// secretKeys returns the keys of SecretKeys; nil if there are none.
func (c *Config) secretKeys() (*subscription.Keys, error) {
	if c.SecretKeys == "" {
		return nil, nil
	}
	return subscription.ParseKeys(c.SecretKeys)
}

// checkAddresses refuses addresses that the hub cannot or should not listen on, and
// a BaseURL that is no URL of a hub.
func (c *Config) checkAddresses(refuse func(field, format string, args ...any)) {
	for _, a := range []struct{ field, address string }{{"Listen", c.Listen}, {"OpsListen", c.OpsListen}} {
		host, _, err := net.SplitHostPort(a.address)
		switch {
		case a.address == "": // only OpsListen may be empty
		case err != nil:
			refuse(a.field, "is no HOST:PORT: %w", err)
		case !Loopback(host) && c.Callers == nil && !c.Insecure:
			refuse(a.field, "is %s, beyond loopback, and there are neither Callers nor Insecure", a.address)
		case !Loopback(host) && a.field == "Listen" && c.BaseURL == "":
			refuse("BaseURL", "is empty, and %s is beyond loopback", a.address)
		}
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		refuse("TLSCertFile", "and Config.TLSKeyFile are a pair, and one is empty")
	}
	if c.TLSCertFile != "" && strings.HasPrefix(strings.ToLower(c.BaseURL), "http:") {
		refuse("BaseURL", "is %s, and the hub speaks TLS (Config.TLSCertFile): it begins with https", c.BaseURL)
	}
	switch u, err := url.Parse(c.BaseURL); {
	case c.BaseURL == "" && c.RedisURL != "":
		refuse("BaseURL", "is empty, and RedisURL is set, so this may be one of several hubs: give the URL that others reach them by")
	case c.BaseURL == "":
	case err != nil || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		refuse("BaseURL", "is no URL such as https://hub.example.org")
	}
}

// memory says, for the log, where the change memory is.
func (c *Config) memory() string {
	if c.RedisURL != "" {
		return "Redis, keys begin with " + c.Prefix
	}
	return c.Data
}

// Loopback reports whether only this machine can reach a server that listens on
// host. It looks up no name, because the addresses of a name may change. The only
// name that counts as loopback is localhost.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
