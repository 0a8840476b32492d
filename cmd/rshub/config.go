package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/access/jwt"
	"github.com/rshub/rshub/internal/build"
	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/nearest"
	"github.com/rshub/rshub/internal/server"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/resourcesync"
)

// config is the whole configuration, read from the environment. Each tag has the full
// name of a variable. If envconfig added the prefix RSHUB_, it would also accept the
// variables without the prefix, such as DATA and INSECURE. The tag group begins a group
// of variables in the help and in the documentation. A duration may have days: 90d.
type config struct {
	Listen     string `group:"The five that matter first" envconfig:"RSHUB_LISTEN" default:"127.0.0.1:8080" desc:"address (HOST:PORT) that the hub listens on"`
	BaseURL    string `envconfig:"RSHUB_BASE_URL" desc:"URL (http or https) by which others reach the hub; required if RSHUB_LISTEN is beyond loopback; default: http://, or https:// with TLS, and then RSHUB_LISTEN"`
	Data       string `envconfig:"RSHUB_DATA" default:"./rshub-data" desc:"directory of the change memory"`
	TokensFile string `envconfig:"RSHUB_TOKENS_FILE" desc:"path of the file with the digests and rights of tokens; rshub token makes its lines, and the hub sees changes within seconds; empty: there are no tokens"`
	RedisURL   string `envconfig:"RSHUB_REDIS_URL" desc:"URL of a Redis that keeps the change memory, for several hubs: redis://, rediss:// or redis-sentinel://HOST,HOST/0?master=NAME; the hub then does not use RSHUB_DATA; empty: the memory is in RSHUB_DATA"`

	OpsListen      string           `group:"Addresses, names and TLS" envconfig:"RSHUB_OPS_LISTEN" default:"127.0.0.1:8081" desc:"address (HOST:PORT) for health, metrics, profiles and backups; empty: the hub serves none of them"`
	Hosts          []string         `envconfig:"RSHUB_HOSTS" desc:"further names that clients reach the hub by, besides that in RSHUB_BASE_URL: separated by commas, without ports, such as rshub.default.svc; *: any name; a caller with a token may use any name"`
	Origins        []string         `envconfig:"RSHUB_ORIGINS" desc:"origins of web pages that may use the hub, separated by commas, such as https://example.org; *: all origins"`
	TrustedProxies setting.Networks `envconfig:"RSHUB_TRUSTED_PROXIES" default:"127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7" desc:"networks (CIDR, separated by commas) of the proxies whose X-Forwarded-For the hub believes, which says what address a request comes from; empty: the hub believes no proxy"`
	Insecure       string           `envconfig:"RSHUB_INSECURE" desc:"anyone-may-publish: the hub listens beyond loopback without tokens, and everybody who reaches it may publish"`
	TLSCertFile    string           `envconfig:"RSHUB_TLS_CERT_FILE" desc:"path of a file with a TLS certificate and its chain (PEM); the hub then speaks TLS on RSHUB_LISTEN, and sees changes of the file within seconds; empty: no TLS"`
	TLSKeyFile     string           `envconfig:"RSHUB_TLS_KEY_FILE" desc:"path of the file with the key (PEM) of the certificate in RSHUB_TLS_CERT_FILE"`

	Sets           []string      `group:"Sets, and how long changes are kept" envconfig:"RSHUB_SETS" desc:"names of the sets that take changes, separated by commas; empty: every set takes changes, and the first publish makes it"`
	DescribedBy    string        `envconfig:"RSHUB_DESCRIBED_BY" desc:"URL of a document that describes all that the hub serves; the hub's Source Description links to it"`
	ChangeListSize int           `envconfig:"RSHUB_CHANGELIST_SIZE" default:"10000" desc:"number of changes in one Change List, 1 to 25000; it applies to new sets, and existing sets keep their number"`
	RetentionAge   time.Duration `envconfig:"RSHUB_RETENTION_AGE" default:"90d" desc:"the hub removes Change Lists that are older than this; 0 keeps lists for ever"`
	RetentionCount uint64        `envconfig:"RSHUB_RETENTION_COUNT" default:"0" desc:"the hub removes the oldest Change Lists of a set while the other lists still have this many changes; 0 keeps any number"`
	DiskReserve    setting.Size  `envconfig:"RSHUB_DISK_RESERVE" default:"64MiB" desc:"with less free disk space than this the hub takes no changes; bytes, or a number with KiB, MiB or GiB"`

	Inventory            string        `group:"Inventories and audits" envconfig:"RSHUB_INVENTORY" default:"on" desc:"on or off: whether the hub keeps inventories of what sets hold now, for baselines, Resource Lists and audits; all hubs that share a Redis should have the same; a set may turn its own off"`
	Poll                 string        `envconfig:"RSHUB_POLL" default:"on" desc:"on or off: whether the hub polls the sources that the descriptions of sets name, at intervals and when a source pings"`
	ResourceListInterval time.Duration `envconfig:"RSHUB_RESOURCELIST_INTERVAL" default:"1h" desc:"how often the Resource List of a set is renewed, if anything changed"`

	JWTKeys       string       `group:"Callers: JWTs, limits and the audit log" envconfig:"RSHUB_JWT_KEYS" desc:"keys that sign JWTs (JSON Web Tokens): an https URL of a JWK Set, or the path of a file with a JWK Set or with public keys (PEM); empty: the hub accepts no JWT"`
	JWTIssuer     string       `envconfig:"RSHUB_JWT_ISSUER" desc:"issuer (iss) of each JWT; required with RSHUB_JWT_KEYS"`
	JWTAudience   []string     `envconfig:"RSHUB_JWT_AUDIENCE" desc:"audiences, separated by commas; each JWT must name one of them (aud); default RSHUB_BASE_URL"`
	CallerLimits  limit.Limits `envconfig:"RSHUB_LIMITS_CALLER" desc:"how much each caller with a token may use of this hub, such as publishes:100/s,changes:1000000/m,bytes:1GiB/m,sets:100/h,requests:5000/m,connections:500; limits= in a line of RSHUB_TOKENS_FILE is stronger; a limit that is not named keeps its default"`
	AddressLimits limit.Limits `envconfig:"RSHUB_LIMITS_ADDRESS" desc:"the same for each address of callers without a token; all IPv6 addresses of a /64 count as one"`
	MaxBody       setting.Size `envconfig:"RSHUB_MAX_BODY" default:"50MiB" desc:"largest body of a publish, compressed and decompressed; a stream of NDJSON may be longer"`
	AuditLog      string       `envconfig:"RSHUB_AUDIT_LOG" desc:"path of a file to which the hub writes who published, described, deleted, subscribed or was refused, as lines of JSON; or stderr; empty: nowhere"`

	CallbackAllow   setting.Networks `group:"Callbacks (WebSub)" envconfig:"RSHUB_CALLBACK_ALLOW" desc:"networks (CIDR, separated by commas) that callbacks may be in, besides public addresses, such as 10.0.0.0/8"`
	CallbackCA      string           `envconfig:"RSHUB_CALLBACK_CA_FILE" desc:"path of a file with CA certificates (PEM) to trust for callbacks, besides the system's"`
	CallbackTimeout time.Duration    `envconfig:"RSHUB_CALLBACK_TIMEOUT" default:"15s" desc:"how long one delivery may take, from the connection to the answer"`
	LeaseMin        time.Duration    `envconfig:"RSHUB_LEASE_MIN" default:"5m" desc:"shortest lease of a WebSub subscription"`
	SecretKeys      string           `envconfig:"RSHUB_SECRET_KEYS" desc:"keys that encrypt the stored secrets of WebSub subscriptions, as ID:KEY, separated by commas, where KEY is 32 bytes in base64; the first encrypts, all of them decrypt; empty: secrets are stored in clear"`

	NATSURL      string        `group:"Several hubs: Redis and NATS" envconfig:"RSHUB_NATS_URL" desc:"URLs of NATS servers, separated by commas, to announce changes to the other hubs; without NATS the other hubs find changes up to two seconds later"`
	NATSCreds    string        `envconfig:"RSHUB_NATS_CREDENTIALS" desc:"path of a NATS credentials file"`
	NATSCA       string        `envconfig:"RSHUB_NATS_CA_FILE" desc:"path of a file with the CA certificates (PEM) to trust for tls:// servers of NATS, in place of the system's"`
	Prefix       string        `envconfig:"RSHUB_PREFIX" default:"rshub" desc:"beginning of every Redis key and NATS subject; with different prefixes, several installations can share one Redis and one NATS"`
	RedisTimeout time.Duration `envconfig:"RSHUB_REDIS_TIMEOUT" default:"5s" desc:"how long the hub waits for a connection to Redis, and for each answer from Redis"`
	RedisWait    int           `envconfig:"RSHUB_REDIS_WAIT" default:"0" desc:"number of Redis replicas that must have a change, or a WebSub request, before the hub answers it (WAIT); 0: the hub waits for none"`

	Heartbeat    time.Duration `group:"Running" envconfig:"RSHUB_HEARTBEAT" default:"30s" desc:"time between signs of life on a connection that follows changes"`
	WriteTimeout time.Duration `envconfig:"RSHUB_WRITE_TIMEOUT" default:"15s" desc:"the hub closes the connection of a client that takes no data for this long"`
	StartTimeout time.Duration `envconfig:"RSHUB_START_TIMEOUT" default:"1m" desc:"how long a hub that starts waits for Redis"`
	DrainDelay   time.Duration `envconfig:"RSHUB_DRAIN_DELAY" default:"0s" desc:"how long a hub that is told to stop still serves, but says that it is not ready, so that load balancers notice; then RSHUB_GRACE begins"`
	Grace        time.Duration `envconfig:"RSHUB_GRACE" default:"25s" desc:"how long a hub that is told to stop waits for its connections to end, before it cuts them"`
	LogLevel     slog.Level    `envconfig:"RSHUB_LOG_LEVEL" default:"info" desc:"lowest level that is logged: debug, info, warn or error"`
}

// configErrors collects all mistakes in the configuration.
type configErrors struct {
	errs     []error
	unparsed map[string]bool // variables that could not be read, so that their values are not checked
}

// add adds a mistake in a variable.
func (p *configErrors) add(name, format string, args ...any) {
	if !p.unparsed[name] {
		p.errs = append(p.errs, fmt.Errorf(name+" "+format, args...))
	}
}

// readConfig reads and checks the environment, and reports every problem at
// once.
func readConfig() (*config, error) {
	var c config
	p := &configErrors{unparsed: map[string]bool{}}
	c.read(p)
	c.checkAddresses(p)
	checkSets(p, "RSHUB_SETS", c.Sets)
	if c.DescribedBy != "" && resourcesync.CheckURI("", c.DescribedBy) != nil {
		p.add("RSHUB_DESCRIBED_BY", "is %q; it is a URL", c.DescribedBy)
	}
	if c.ChangeListSize < 1 || c.ChangeListSize > changelog.MaxListSize {
		p.add("RSHUB_CHANGELIST_SIZE", "is %d; it is 1 to %d", c.ChangeListSize, changelog.MaxListSize)
	}
	c.checkStore(p)
	if c.Insecure != "" && c.Insecure != insecure {
		p.add("RSHUB_INSECURE", "is %q; the only value is %s", c.Insecure, insecure)
	}
	if c.Inventory != "on" && c.Inventory != "off" {
		p.add("RSHUB_INVENTORY", "is %q; it is on or off", c.Inventory)
	}
	if c.Poll != "on" && c.Poll != "off" {
		p.add("RSHUB_POLL", "is %q; it is on or off", c.Poll)
	}
	if c.MaxBody < 1<<10 || c.MaxBody > 1<<40 {
		p.add("RSHUB_MAX_BODY", "is %d bytes; it is 1KiB to 1TiB", c.MaxBody)
	}
	for i, host := range c.Hosts {
		if c.Hosts[i] = strings.ToLower(strings.TrimSpace(host)); !hostPattern.MatchString(c.Hosts[i]) {
			p.add("RSHUB_HOSTS", "has %q; a name is like rshub.default.svc, without a port", host)
		}
	}
	for i, o := range c.Origins {
		o = strings.ToLower(strings.TrimSpace(o)) // as browsers write them
		c.Origins[i] = o
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Host == "" || u.Scheme+"://"+u.Host != o) {
			p.add("RSHUB_ORIGINS", "has %q, which is not an origin such as https://example.org", o)
		}
	}
	for i, audience := range c.JWTAudience {
		if c.JWTAudience[i] = strings.TrimSpace(audience); c.JWTAudience[i] == "" {
			p.add("RSHUB_JWT_AUDIENCE", "has an empty entry; write audiences such as https://hub.example.org with one comma between two")
		}
	}
	for _, d := range []struct {
		name         string
		value, least time.Duration
	}{
		{"RSHUB_RETENTION_AGE", c.RetentionAge, 0}, {"RSHUB_RESOURCELIST_INTERVAL", c.ResourceListInterval, time.Second}, {"RSHUB_HEARTBEAT", c.Heartbeat, time.Second},
		{"RSHUB_WRITE_TIMEOUT", c.WriteTimeout, 100 * time.Millisecond},
		{"RSHUB_START_TIMEOUT", c.StartTimeout, time.Millisecond}, {"RSHUB_DRAIN_DELAY", c.DrainDelay, 0}, {"RSHUB_GRACE", c.Grace, 0},
		{"RSHUB_CALLBACK_TIMEOUT", c.CallbackTimeout, 100 * time.Millisecond}, {"RSHUB_LEASE_MIN", c.LeaseMin, time.Second},
	} {
		if d.value < d.least {
			p.add(d.name, "is %v; it must be at least %v", d.value, d.least)
		}
	}
	return &c, errors.Join(p.errs...)
}

// checkStore checks the part of the configuration that store returns.
func (c *config) checkStore(p *configErrors) {
	if !prefixPattern.MatchString(c.Prefix) {
		p.add("RSHUB_PREFIX", "is %q; it is 1 to 40 of a-z, A-Z, 0-9, hyphen and underscore", c.Prefix)
	}
	if c.RedisWait < 0 || c.RedisWait > 0 && c.RedisURL == "" {
		p.add("RSHUB_REDIS_WAIT", "is %d; it is a number of replicas of RSHUB_REDIS_URL", c.RedisWait)
	}
	if minTimeout := 100 * time.Millisecond; c.RedisTimeout < minTimeout {
		p.add("RSHUB_REDIS_TIMEOUT", "is %v; it must be at least %v", c.RedisTimeout, minTimeout)
	}
	if c.SecretKeys == "" {
		return
	}
	if err := server.CheckSecretKeys(c.SecretKeys); err != nil {
		p.add("RSHUB_SECRET_KEYS", "cannot be used: %w", err)
	}
}

// read reads the environment. It calls envconfig once for each variable, because
// envconfig stops at the first variable that it cannot read.
func (c *config) read(p *configErrors) {
	fields := reflect.ValueOf(c).Elem()
	for i := range fields.NumField() {
		single := reflect.New(reflect.StructOf([]reflect.StructField{fields.Type().Field(i)}))
		err := envconfig.Process("", single.Interface())
		if e, ok := errors.AsType[*envconfig.ParseError](err); ok {
			if fields.Field(i).Type() == reflect.TypeFor[time.Duration]() { // envconfig does not know days
				var d time.Duration
				if d, e.Err = setting.ParseDuration(e.Value); e.Err == nil {
					fields.Field(i).SetInt(int64(d))
					continue
				}
			}
			p.add(e.KeyName, "is %q: %w", e.Value, e.Err)
			p.unparsed[e.KeyName] = true
		} else if err != nil {
			p.errs = append(p.errs, err)
		}
		fields.Field(i).Set(single.Elem().Field(0))
	}
}

// checkSets trims names of sets, and checks them.
func checkSets(p *configErrors, name string, sets []string) {
	for i, set := range sets {
		sets[i] = strings.TrimSpace(set)
		if err := feed.CheckSet(sets[i]); err != nil {
			p.add(name, "has a wrong name: %w", err)
		}
	}
}

// insecure is the only value that RSHUB_INSECURE may have.
const insecure = "anyone-may-publish"

// checkAddresses checks the addresses that the hub listens on and its URL. Without
// tokens, an address that others can reach is refused.
func (c *config) checkAddresses(p *configErrors) {
	open := c.TokensFile == "" && c.JWTKeys == "" && c.Insecure != insecure
	switch host, _, err := net.SplitHostPort(c.Listen); {
	case err != nil:
		p.add("RSHUB_LISTEN", "is %q; it is HOST:PORT: %w", c.Listen, err)
	case !server.Loopback(host):
		if open {
			p.add("RSHUB_LISTEN", "is %s, beyond loopback, and there are no tokens, so anyone could publish: set RSHUB_TOKENS_FILE (rshub token new makes one), RSHUB_JWT_KEYS, or RSHUB_INSECURE=%s", c.Listen, insecure)
		}
		if c.BaseURL == "" {
			p.add("RSHUB_LISTEN", "is %s, beyond loopback: set RSHUB_BASE_URL to the URL that others reach the hub by", c.Listen)
		}
	}
	if c.OpsListen != "" {
		switch host, _, err := net.SplitHostPort(c.OpsListen); {
		case err != nil:
			p.add("RSHUB_OPS_LISTEN", "is %q; it is HOST:PORT: %w", c.OpsListen, err)
		case !server.Loopback(host) && open:
			p.add("RSHUB_OPS_LISTEN", "is %s, beyond loopback, and there are no tokens, so anyone could read a backup: set RSHUB_TOKENS_FILE, or RSHUB_INSECURE=%s", c.OpsListen, insecure)
		}
	}
	if c.BaseURL == "" && c.RedisURL != "" {
		p.add("RSHUB_REDIS_URL", "is set, so this may be one of several hubs: set RSHUB_BASE_URL to the URL that others reach them by")
	}
	if c.NATSURL != "" && c.RedisURL == "" {
		p.add("RSHUB_NATS_URL", "needs RSHUB_REDIS_URL: only hubs that share a Redis announce changes to each other")
	}
	if (c.JWTIssuer != "" || len(c.JWTAudience) > 0) && c.JWTKeys == "" {
		p.errs = append(p.errs, errors.New("RSHUB_JWT_ISSUER and RSHUB_JWT_AUDIENCE are for RSHUB_JWT_KEYS, which is not set"))
	}
	if c.JWTKeys != "" && c.JWTIssuer == "" {
		p.errs = append(p.errs, errors.New("RSHUB_JWT_KEYS needs RSHUB_JWT_ISSUER: who issues the JWTs (iss)"))
	}
	if c.JWTKeys != "" && len(c.JWTAudience) == 0 && c.BaseURL == "" {
		p.errs = append(p.errs, errors.New("RSHUB_JWT_KEYS needs RSHUB_JWT_AUDIENCE or RSHUB_BASE_URL: a JWT for another service must not be valid here (aud)"))
	}
	if (c.NATSCA != "" || c.NATSCreds != "") && c.NATSURL == "" {
		p.errs = append(p.errs, errors.New("RSHUB_NATS_CA_FILE and RSHUB_NATS_CREDENTIALS are for RSHUB_NATS_URL, which is not set"))
	}
	if c.BaseURL == "" {
		return
	}
	u, err := url.Parse(c.BaseURL)
	if err == nil {
		err = idn.Host(u)
	}
	switch {
	case err == nil && u.User != nil:
		p.add("RSHUB_BASE_URL", "has a user or a password in it; it is a URL such as https://hub.example.org")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		p.add("RSHUB_BASE_URL", "is %q; it is a URL such as https://hub.example.org", c.BaseURL)
	default:
		c.BaseURL = strings.TrimRight(u.String(), "/")
	}
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

var hostPattern = regexp.MustCompile(`^(\*|[a-z0-9_-]+(\.[a-z0-9_-]+)*)$`)

var serviceLinkPattern = regexp.MustCompile(`_PORT_[0-9]+_`)

// unknownVariables returns the variables that begin with RSHUB_ and that rshub does
// not know. They are probably misspelt.
func unknownVariables() []string {
	known := map[string]bool{"RSHUB_TOKEN": true} // for rshub backup and rshub follow
	for _, name := range variables() {
		known[name] = true
	}
	var unknown []string
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case !strings.HasPrefix(name, "RSHUB_") || known[name]:
		case strings.Contains(name, "_SERVICE_"), serviceLinkPattern.MatchString(name), strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://"):
			// Kubernetes sets these for every service whose name begins with rshub.
		default:
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// checkVariables returns an error if there are unknown variables. Only the hub calls it,
// because other commands may run where variables of other programs are set.
func checkVariables() error {
	var errs []error
	for _, name := range unknownVariables() {
		hint := ""
		if suggestion := nearest.Of(name, variables()); suggestion != "" {
			hint = "; did you mean " + suggestion + "?"
		}
		errs = append(errs, fmt.Errorf("rshub knows no variable %s%s", name, hint))
	}
	return errors.Join(errs...)
}

// variables returns the names of all variables.
func variables() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		names = append(names, f.Tag.Get("envconfig"))
	}
	return names
}

// printVariables explains every variable, in groups.
func printVariables(w io.Writer) error {
	var text strings.Builder
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		if group := f.Tag.Get("group"); group != "" {
			fmt.Fprintf(&text, "\n%s\n", group)
		}
		fmt.Fprintf(&text, "\n  %s", f.Tag.Get("envconfig"))
		if value := f.Tag.Get("default"); value != "" {
			fmt.Fprintf(&text, "  (default %s)", value)
		}
		text.WriteString("\n")
		line := "     "
		for word := range strings.FieldsSeq(f.Tag.Get("desc")) {
			if len(line)+1+len(word) > helpWidth && len(line) > 5 {
				text.WriteString(line + "\n")
				line = "     "
			}
			line += " " + word
		}
		text.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, strings.TrimPrefix(text.String(), "\n"))
	return err
}

// helpWidth is how many columns a line of the help has.
const helpWidth = 80

// server returns the configuration for package server. It reads the files that the
// variables name.
func (c *config) server(log *slog.Logger) (server.Config, error) {
	callers, err := c.callers(log)
	if err != nil {
		return server.Config{}, err
	}
	cas, err := readCAs(c.CallbackCA)
	if err != nil {
		return server.Config{}, fmt.Errorf("RSHUB_CALLBACK_CA_FILE: %w", err)
	}
	s := c.store()
	s.Listen, s.OpsListen, s.BaseURL = c.Listen, c.OpsListen, c.BaseURL
	s.NATSURL, s.NATSCredentials, s.NATSRootCAs = c.NATSURL, c.NATSCreds, c.NATSCA
	s.Sets, s.DescribedBy, s.ChangeListSize = c.Sets, c.DescribedBy, c.ChangeListSize
	s.Retention = changelog.Retention{Age: c.RetentionAge, Count: c.RetentionCount}
	s.NoPoll = c.Poll == "off"
	s.NoInventory, s.ResourceListInterval = c.Inventory == "off", c.ResourceListInterval
	s.Callers, s.Insecure, s.Hosts, s.Origins = callers, c.Insecure == insecure, c.Hosts, c.Origins
	s.TLSCertFile, s.TLSKeyFile = c.TLSCertFile, c.TLSKeyFile
	s.AuditLog, s.TrustedProxies = c.AuditLog, c.TrustedProxies
	s.CallerLimits, s.AddressLimits = c.CallerLimits, c.AddressLimits
	s.CallbackAllow, s.CallbackCAs, s.CallbackTimeout = c.CallbackAllow, cas, c.CallbackTimeout
	s.LeaseMin = c.LeaseMin
	s.MaxBody, s.Heartbeat, s.WriteTimeout = int64(c.MaxBody), c.Heartbeat, c.WriteTimeout
	s.StartTimeout, s.DrainDelay, s.Grace = c.StartTimeout, c.DrainDelay, c.Grace
	if s.Grace == 0 {
		s.Grace = -1 // no grace; 0 would mean the default
	}
	s.Logger, s.Version = log, build.Version()
	return s, nil
}

// callers returns the Authenticator; nil means that everybody may do
// everything.
func (c *config) callers(log *slog.Logger) (access.Authenticator, error) {
	var tokens *access.TokensFile
	if c.TokensFile != "" {
		var err error
		if tokens, err = access.OpenTokensFile(c.TokensFile, log); err != nil {
			return nil, err
		}
	}
	switch {
	case c.JWTKeys == "" && tokens == nil:
		return nil, nil
	case c.JWTKeys == "":
		return tokens, nil
	}
	keys, err := jwt.OpenKeys(c.JWTKeys, log)
	if err != nil {
		return nil, fmt.Errorf("RSHUB_JWT_KEYS: %w", err)
	}
	audience := c.JWTAudience
	if len(audience) == 0 {
		audience = []string{c.BaseURL}
	}
	return jwt.New(keys, jwt.Options{Issuer: c.JWTIssuer, Audience: audience, Others: tokens})
}

// store returns the part of the configuration that is needed to open the change
// memory.
func (c *config) store() server.Config {
	return server.Config{
		Data: c.Data, DiskReserve: max(uint64(c.DiskReserve), 1), // 0 would mean the default
		RedisURL: c.RedisURL, Prefix: c.Prefix, RedisTimeout: c.RedisTimeout,
		RedisWait: c.RedisWait, SecretKeys: c.SecretKeys,
	}
}

// readCAs returns the system's certificate authorities and those in a file. It
// returns nil if path is empty.
func readCAs(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return pool, nil
}
