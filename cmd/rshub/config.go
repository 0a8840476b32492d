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

// config is the configuration of the hub, read from the environment. Each envconfig tag has
// the full name of a variable: if envconfig added the prefix RSHUB_, it would also accept
// variables without it, such as DATA and INSECURE. A group tag starts a group of variables in
// the help and in the documentation. Durations may have days, such as 90d.
type config struct {
	Listen     string `group:"Basic settings" envconfig:"RSHUB_LISTEN" default:"127.0.0.1:8080" desc:"address (HOST:PORT) to listen on"`
	BaseURL    string `envconfig:"RSHUB_BASE_URL" desc:"public URL (http or https) of the hub; required with RSHUB_REDIS_URL, and if RSHUB_LISTEN is not a loopback address; default: http:// (https:// with TLS) followed by RSHUB_LISTEN"`
	Data       string `envconfig:"RSHUB_DATA" default:"./rshub-data" desc:"directory of the change memory"`
	TokensFile string `envconfig:"RSHUB_TOKENS_FILE" desc:"path of a file with the digests and rights of tokens, whose lines rshub token creates; changes take effect within seconds; if empty, there are no tokens"`
	RedisURL   string `envconfig:"RSHUB_REDIS_URL" desc:"URL of a Redis for the change memory of several hubs: redis://, rediss:// or redis-sentinel://HOST,HOST/0?master=NAME; if empty, RSHUB_DATA is used"`

	OpsListen      string           `group:"Addresses, names and TLS" envconfig:"RSHUB_OPS_LISTEN" default:"127.0.0.1:8081" desc:"address (HOST:PORT) for health checks, metrics, profiles and backups; if empty, none of them is served"`
	Hosts          []string         `envconfig:"RSHUB_HOSTS" desc:"additional host names of the hub, besides that in RSHUB_BASE_URL: comma-separated, without ports, such as rshub.default.svc; *: any name; callers with a token may use any name"`
	Origins        []string         `envconfig:"RSHUB_ORIGINS" desc:"comma-separated origins of web pages that may use the hub, such as https://example.org; *: any origin"`
	TrustedProxies setting.Networks `envconfig:"RSHUB_TRUSTED_PROXIES" default:"127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7" desc:"comma-separated networks (CIDR) of proxies whose X-Forwarded-For header is trusted for client addresses; if empty, no proxy is trusted"`
	Insecure       string           `envconfig:"RSHUB_INSECURE" desc:"anyone-may-publish: allow addresses beyond loopback without tokens; anyone who reaches the hub may then publish"`
	TLSCertFile    string           `envconfig:"RSHUB_TLS_CERT_FILE" desc:"path of a file with a TLS certificate and its chain (PEM) for RSHUB_LISTEN; changes of the file take effect within seconds; if empty, there is no TLS"`
	TLSKeyFile     string           `envconfig:"RSHUB_TLS_KEY_FILE" desc:"path of a file with the private key (PEM) of the certificate in RSHUB_TLS_CERT_FILE"`

	Sets           []string      `group:"Sets and retention" envconfig:"RSHUB_SETS" desc:"comma-separated names of the sets that accept changes; if empty, all sets do, and the first publish creates a set"`
	DescribedBy    string        `envconfig:"RSHUB_DESCRIBED_BY" desc:"URL of a document that describes everything the hub serves; the Source Description links to it"`
	ChangeListSize int           `envconfig:"RSHUB_CHANGELIST_SIZE" default:"10000" desc:"number of changes per Change List, 1 to 25000; it applies to new sets only"`
	RetentionAge   time.Duration `envconfig:"RSHUB_RETENTION_AGE" default:"90d" desc:"age after which Change Lists are removed; 0 means no limit"`
	RetentionCount uint64        `envconfig:"RSHUB_RETENTION_COUNT" default:"0" desc:"number of changes to retain per set: the oldest Change List is removed if the others have at least this many; 0 means no limit"`
	DiskReserve    setting.Size  `envconfig:"RSHUB_DISK_RESERVE" default:"64MiB" desc:"free disk space below which the hub refuses changes: bytes, or a number with KiB, MiB or GiB"`

	Inventory            string        `group:"Inventories and audits" envconfig:"RSHUB_INVENTORY" default:"on" desc:"on or off: whether to maintain inventories of the resources in sets, for baselines, Resource Lists and audits; hubs that share a Redis should use the same value; a set can turn its own off"`
	Poll                 string        `envconfig:"RSHUB_POLL" default:"on" desc:"on or off: whether to poll the sources in the descriptions of sets, at intervals and after pings"`
	ResourceListInterval time.Duration `envconfig:"RSHUB_RESOURCELIST_INTERVAL" default:"1h" desc:"how often to renew the Resource List of a set that has changed"`

	JWTKeys       string       `group:"Callers: JWTs, limits and the audit log" envconfig:"RSHUB_JWT_KEYS" desc:"public keys of the issuer of JWTs (JSON Web Tokens): https URL of a JWK Set, or path of a file with a JWK Set or PEM; if empty, no JWT is accepted"`
	JWTIssuer     string       `envconfig:"RSHUB_JWT_ISSUER" desc:"issuer (iss) that each JWT must have; required with RSHUB_JWT_KEYS"`
	JWTAudience   []string     `envconfig:"RSHUB_JWT_AUDIENCE" desc:"comma-separated audiences (aud); each JWT must have one of them; default: RSHUB_BASE_URL"`
	CallerLimits  limit.Limits `envconfig:"RSHUB_LIMITS_CALLER" desc:"limits of each caller with a token on this hub, such as publishes:100/s,changes:1000000/m,bytes:1GiB/m,sets:100/h,requests:5000/m,connections:500,follows:500; limits= in a line of RSHUB_TOKENS_FILE takes precedence; limits that are not given keep their defaults"`
	AddressLimits limit.Limits `envconfig:"RSHUB_LIMITS_ADDRESS" desc:"the same limits for each address of callers without a token; the IPv6 addresses of a /64 count as one"`
	MaxBody       setting.Size `envconfig:"RSHUB_MAX_BODY" default:"50MiB" desc:"maximum size of the body of a publish, compressed and decompressed; an NDJSON stream may be longer"`
	AuditLog      string       `envconfig:"RSHUB_AUDIT_LOG" desc:"path of the audit log, a file of JSON lines that record who published, described, deleted, subscribed or was refused; stderr means standard error; if empty, there is no audit log"`

	CallbackAllow   setting.Networks `group:"Callbacks (WebSub)" envconfig:"RSHUB_CALLBACK_ALLOW" desc:"comma-separated networks (CIDR), such as 10.0.0.0/8, where callbacks are allowed in addition to public addresses"`
	CallbackCA      string           `envconfig:"RSHUB_CALLBACK_CA_FILE" desc:"path of a file with CA certificates (PEM) to trust for callbacks, in addition to the system's"`
	CallbackTimeout time.Duration    `envconfig:"RSHUB_CALLBACK_TIMEOUT" default:"15s" desc:"timeout of one delivery, from the connection to the response"`
	LeaseMin        time.Duration    `envconfig:"RSHUB_LEASE_MIN" default:"5m" desc:"minimum lease of a WebSub subscription"`
	SecretKeys      string           `envconfig:"RSHUB_SECRET_KEYS" desc:"keys that encrypt the stored secrets of WebSub subscriptions: comma-separated ID:KEY, where KEY is 32 bytes in base64; the first encrypts, all decrypt; if empty, secrets are stored unencrypted"`

	NATSURL      string        `group:"Several hubs: Redis and NATS" envconfig:"RSHUB_NATS_URL" desc:"comma-separated URLs of NATS servers for announcing changes to the other hubs; if empty, the other hubs notice changes up to two seconds later"`
	NATSCreds    string        `envconfig:"RSHUB_NATS_CREDENTIALS" desc:"path of a NATS credentials file"`
	NATSCA       string        `envconfig:"RSHUB_NATS_CA_FILE" desc:"path of a file with CA certificates (PEM) to trust for tls:// servers of NATS, instead of the system's"`
	Prefix       string        `envconfig:"RSHUB_PREFIX" default:"rshub" desc:"prefix of all Redis keys and NATS subjects; installations with different prefixes can share one Redis and one NATS"`
	RedisTimeout time.Duration `envconfig:"RSHUB_REDIS_TIMEOUT" default:"5s" desc:"timeout for connecting to Redis, and for each response of Redis"`
	RedisWait    int           `envconfig:"RSHUB_REDIS_WAIT" default:"0" desc:"number of Redis replicas that must have a change or a WebSub request before the hub responds (WAIT); 0 means none"`

	Heartbeat    time.Duration `group:"Connections, startup and shutdown" envconfig:"RSHUB_HEARTBEAT" default:"30s" desc:"interval of heartbeats on connections that follow changes"`
	WriteTimeout time.Duration `envconfig:"RSHUB_WRITE_TIMEOUT" default:"15s" desc:"time after which the connection of a client that accepts no data is closed"`
	StartTimeout time.Duration `envconfig:"RSHUB_START_TIMEOUT" default:"1m" desc:"how long to wait for Redis at startup"`
	DrainDelay   time.Duration `envconfig:"RSHUB_DRAIN_DELAY" default:"0s" desc:"after a stop signal, how long to serve while reporting not ready, so that load balancers notice; RSHUB_GRACE starts afterwards"`
	Grace        time.Duration `envconfig:"RSHUB_GRACE" default:"25s" desc:"after a stop signal, how long to wait for connections to end before closing them"`
	LogLevel     slog.Level    `envconfig:"RSHUB_LOG_LEVEL" default:"info" desc:"minimum level of logged messages: debug, info, warn or error"`
}

// configErrors collects the errors of a configuration.
type configErrors struct {
	errs     []error
	unparsed map[string]bool // variables whose values could not be parsed, and are not checked further
}

// add adds an error of a variable, unless its value could not be parsed.
func (p *configErrors) add(name, format string, args ...any) {
	if !p.unparsed[name] {
		p.errs = append(p.errs, fmt.Errorf(name+": "+format, args...))
	}
}

// readConfig reads the environment and validates it. The error has all invalid variables, one
// per line.
func readConfig() (*config, error) {
	var c config
	p := &configErrors{unparsed: map[string]bool{}}
	c.read(p)
	c.checkAddresses(p)
	checkSets(p, "RSHUB_SETS", c.Sets)
	if c.DescribedBy != "" && resourcesync.CheckURI("", c.DescribedBy) != nil {
		p.add("RSHUB_DESCRIBED_BY", "got %q, want a URL", c.DescribedBy)
	}
	if c.ChangeListSize < 1 || c.ChangeListSize > changelog.MaxListSize {
		p.add("RSHUB_CHANGELIST_SIZE", "got %d, want 1 to %d", c.ChangeListSize, changelog.MaxListSize)
	}
	c.checkStore(p)
	if c.Insecure != "" && c.Insecure != insecure {
		p.add("RSHUB_INSECURE", "got %q, want %s", c.Insecure, insecure)
	}
	if c.Inventory != "on" && c.Inventory != "off" {
		p.add("RSHUB_INVENTORY", "got %q, want on or off", c.Inventory)
	}
	if c.Poll != "on" && c.Poll != "off" {
		p.add("RSHUB_POLL", "got %q, want on or off", c.Poll)
	}
	if c.MaxBody < 1<<10 || c.MaxBody > 1<<40 {
		p.add("RSHUB_MAX_BODY", "got %d bytes, want 1KiB to 1TiB", c.MaxBody)
	}
	for i, host := range c.Hosts {
		if c.Hosts[i] = strings.ToLower(strings.TrimSpace(host)); !hostPattern.MatchString(c.Hosts[i]) {
			p.add("RSHUB_HOSTS", "got %q, want a host name without a port, such as rshub.default.svc", host)
		}
	}
	for i, o := range c.Origins {
		o = strings.ToLower(strings.TrimSpace(o)) // as browsers write them
		c.Origins[i] = o
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Host == "" || u.Scheme+"://"+u.Host != o) {
			p.add("RSHUB_ORIGINS", "got %q, want an origin such as https://example.org", o)
		}
	}
	for i, audience := range c.JWTAudience {
		if c.JWTAudience[i] = strings.TrimSpace(audience); c.JWTAudience[i] == "" {
			p.add("RSHUB_JWT_AUDIENCE", "empty entry; separate audiences such as https://hub.example.org by single commas")
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
			p.add(d.name, "got %v, want at least %v", d.value, d.least)
		}
	}
	return &c, errors.Join(p.errs...)
}

// checkStore validates the part of the configuration that store returns.
func (c *config) checkStore(p *configErrors) {
	if !prefixPattern.MatchString(c.Prefix) {
		p.add("RSHUB_PREFIX", "got %q, want 1 to 40 of a-z, A-Z, 0-9, hyphen and underscore", c.Prefix)
	}
	if c.RedisWait < 0 || c.RedisWait > 0 && c.RedisURL == "" {
		p.add("RSHUB_REDIS_WAIT", "got %d, want a number of replicas of RSHUB_REDIS_URL", c.RedisWait)
	}
	if minTimeout := 100 * time.Millisecond; c.RedisTimeout < minTimeout {
		p.add("RSHUB_REDIS_TIMEOUT", "got %v, want at least %v", c.RedisTimeout, minTimeout)
	}
	if c.SecretKeys == "" {
		return
	}
	if err := server.CheckSecretKeys(c.SecretKeys); err != nil {
		p.add("RSHUB_SECRET_KEYS", "%w", err)
	}
}

// read reads the environment without validating values. It calls envconfig once per variable,
// because envconfig stops at the first value that it cannot parse.
func (c *config) read(p *configErrors) {
	fields := reflect.ValueOf(c).Elem()
	for i := range fields.NumField() {
		single := reflect.New(reflect.StructOf([]reflect.StructField{fields.Type().Field(i)}))
		err := envconfig.Process("", single.Interface())
		if e, ok := errors.AsType[*envconfig.ParseError](err); ok {
			if fields.Field(i).Type() == reflect.TypeFor[time.Duration]() { // envconfig does not support days
				var d time.Duration
				if d, e.Err = setting.ParseDuration(e.Value); e.Err == nil {
					fields.Field(i).SetInt(int64(d))
					continue
				}
			}
			p.add(e.KeyName, "invalid value %q: %w", e.Value, e.Err)
			p.unparsed[e.KeyName] = true
		} else if err != nil {
			p.errs = append(p.errs, err)
		}
		fields.Field(i).Set(single.Elem().Field(0))
	}
}

// checkSets trims the names of sets in place, and validates them.
func checkSets(p *configErrors, name string, sets []string) {
	for i, set := range sets {
		sets[i] = strings.TrimSpace(set)
		if err := feed.CheckSet(sets[i]); err != nil {
			p.add(name, "%w", err)
		}
	}
}

// insecure is the only valid value of RSHUB_INSECURE other than the empty one.
const insecure = "anyone-may-publish"

// checkAddresses validates the addresses and URLs of the hub, and variables that require each
// other. Without tokens, it refuses addresses beyond loopback.
func (c *config) checkAddresses(p *configErrors) {
	open := c.TokensFile == "" && c.JWTKeys == "" && c.Insecure != insecure
	switch host, _, err := net.SplitHostPort(c.Listen); {
	case err != nil:
		p.add("RSHUB_LISTEN", "got %q, want HOST:PORT: %w", c.Listen, err)
	case !server.Loopback(host):
		if open {
			p.add("RSHUB_LISTEN", "%s is not a loopback address, and without tokens anyone could publish; set RSHUB_TOKENS_FILE (see rshub token new), RSHUB_JWT_KEYS or RSHUB_INSECURE=%s", c.Listen, insecure)
		}
		if c.BaseURL == "" {
			p.add("RSHUB_LISTEN", "%s is not a loopback address; set RSHUB_BASE_URL to the public URL of the hub", c.Listen)
		}
	}
	if c.OpsListen != "" {
		switch host, _, err := net.SplitHostPort(c.OpsListen); {
		case err != nil:
			p.add("RSHUB_OPS_LISTEN", "got %q, want HOST:PORT: %w", c.OpsListen, err)
		case !server.Loopback(host) && open:
			p.add("RSHUB_OPS_LISTEN", "%s is not a loopback address, and without tokens anyone could read a backup; set RSHUB_TOKENS_FILE or RSHUB_INSECURE=%s", c.OpsListen, insecure)
		}
	}
	if c.BaseURL == "" && c.RedisURL != "" {
		p.add("RSHUB_REDIS_URL", "several hubs may share a Redis; set RSHUB_BASE_URL to their public URL")
	}
	if c.NATSURL != "" && c.RedisURL == "" {
		p.add("RSHUB_NATS_URL", "requires RSHUB_REDIS_URL, because only hubs that share a Redis announce changes to each other")
	}
	if (c.JWTIssuer != "" || len(c.JWTAudience) > 0) && c.JWTKeys == "" {
		p.errs = append(p.errs, errors.New("RSHUB_JWT_ISSUER and RSHUB_JWT_AUDIENCE require RSHUB_JWT_KEYS, which is not set"))
	}
	if c.JWTKeys != "" && c.JWTIssuer == "" {
		p.errs = append(p.errs, errors.New("RSHUB_JWT_KEYS requires RSHUB_JWT_ISSUER, the issuer (iss) of the JWTs"))
	}
	if c.JWTKeys != "" && len(c.JWTAudience) == 0 && c.BaseURL == "" {
		p.errs = append(p.errs, errors.New("RSHUB_JWT_KEYS requires RSHUB_JWT_AUDIENCE or RSHUB_BASE_URL: a JWT for another service (aud) must not be valid here"))
	}
	if (c.NATSCA != "" || c.NATSCreds != "") && c.NATSURL == "" {
		p.errs = append(p.errs, errors.New("RSHUB_NATS_CA_FILE and RSHUB_NATS_CREDENTIALS require RSHUB_NATS_URL, which is not set"))
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
		p.add("RSHUB_BASE_URL", "want a URL such as https://hub.example.org, without user and password")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		p.add("RSHUB_BASE_URL", "got %q, want a URL such as https://hub.example.org", c.BaseURL)
	default:
		c.BaseURL = strings.TrimRight(u.String(), "/")
	}
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

var hostPattern = regexp.MustCompile(`^(\*|[a-z0-9_-]+(\.[a-z0-9_-]+)*)$`)

var serviceLinkPattern = regexp.MustCompile(`_PORT_[0-9]+_`)

// unknownVariables returns the names of variables that start with RSHUB_ but are not defined by
// rshub. They are probably misspelled.
func unknownVariables() []string {
	known := map[string]bool{"RSHUB_TOKEN": true} // used by rshub backup, follow and audit
	for _, name := range variables() {
		known[name] = true
	}
	var unknown []string
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case !strings.HasPrefix(name, "RSHUB_") || known[name]:
		case strings.Contains(name, "_SERVICE_"), serviceLinkPattern.MatchString(name), strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://"):
			// Kubernetes sets these for every service whose name starts with rshub.
		default:
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// checkVariables returns an error that names all unknown variables, or nil. Only the hub calls it:
// other commands may run in environments with variables of other programs.
func checkVariables() error {
	var errs []error
	for _, name := range unknownVariables() {
		hint := ""
		if suggestion := nearest.Of(name, variables()); suggestion != "" {
			hint = "; did you mean " + suggestion + "?"
		}
		errs = append(errs, fmt.Errorf("unknown variable %s%s", name, hint))
	}
	return errors.Join(errs...)
}

// variables returns the names of all variables of config.
func variables() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		names = append(names, f.Tag.Get("envconfig"))
	}
	return names
}

// printVariables writes name, default and description of every variable, in groups.
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

// helpWidth is the maximum number of columns of the help of variables.
const helpWidth = 80

// server returns the configuration for package server. It opens the files of tokens, keys and
// CA certificates.
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
		s.Grace = -1 // no grace period, because zero means the default
	}
	s.Logger, s.Version = log, build.Version()
	return s, nil
}

// callers returns the Authenticator for tokens and JWTs. It returns nil, which means that every
// caller has all rights, if neither is configured.
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
	return jwt.New(keys, jwt.Options{Issuer: c.JWTIssuer, Audience: audience, Fallback: tokens})
}

// store returns the part of the configuration that is needed to open the change memory.
func (c *config) store() server.Config {
	return server.Config{
		Data: c.Data, DiskReserve: max(uint64(c.DiskReserve), 1), // zero means the default
		RedisURL: c.RedisURL, Prefix: c.Prefix, RedisTimeout: c.RedisTimeout,
		RedisWait: c.RedisWait, SecretKeys: c.SecretKeys,
	}
}

// readCAs returns the CA certificates of the system and those in the file at path. It returns
// nil if path is empty.
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
		return nil, fmt.Errorf("load the system's CA certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no PEM certificate found", path)
	}
	return pool, nil
}
