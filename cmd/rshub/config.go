package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/rshub/rshub/changelog"
)

// config is the whole configuration, read from the environment. The names are
// whole: envconfig would take a prefix off, and be content with DATA or INSECURE.
type config struct {
	Listen    string `envconfig:"RSHUB_LISTEN" default:"127.0.0.1:8080" desc:"address that the hub listens on"`
	OpsListen string `envconfig:"RSHUB_OPS_LISTEN" default:"127.0.0.1:8081" desc:"address for health, metrics, profiles and backups; empty: none"`
	BaseURL   string `envconfig:"RSHUB_BASE_URL" desc:"the hub's URL as others see it, http or https; required beyond loopback; default http://LISTEN"`

	Data        string `envconfig:"RSHUB_DATA" default:"./rshub-data" desc:"directory of the change memory"`
	DiskReserve size   `envconfig:"RSHUB_DISK_RESERVE" default:"64MiB" desc:"with less free space than this the hub takes no changes"`

	RedisURL string `envconfig:"RSHUB_REDIS_URL" desc:"keeps the change memory in Redis, for several hubs: redis://, rediss://, redis-sentinel://HOST,HOST/0?master=NAME; then RSHUB_DATA is not used"`

	RedisTimeout       time.Duration `envconfig:"RSHUB_REDIS_TIMEOUT" default:"5s" desc:"for connecting to Redis, and for each answer of it"`
	RedisWait          int           `envconfig:"RSHUB_REDIS_WAIT" default:"0" desc:"replicas that must have a change, or a WebSub request, before it is answered (WAIT)"`
	RedisWaitTimeout   time.Duration `envconfig:"RSHUB_REDIS_WAIT_TIMEOUT" default:"1s" desc:"when they have it not by then, the answer is 503"`
	RedisAllowEviction bool          `envconfig:"RSHUB_REDIS_ALLOW_EVICTION" default:"false" desc:"take a Redis that may evict keys, or that does not say; what it evicts is lost"`

	NATSURL   string `envconfig:"RSHUB_NATS_URL" desc:"announces changes to the other hubs; servers by comma; without it they find them a little later"`
	NATSCreds string `envconfig:"RSHUB_NATS_CREDENTIALS" desc:"a NATS credentials file"`
	NATSCA    string `envconfig:"RSHUB_NATS_CA_FILE" desc:"certificates (PEM) to trust in place of the system's, for tls:// servers"`
	Prefix    string `envconfig:"RSHUB_PREFIX" default:"rshub" desc:"begins every Redis key and NATS subject, so that several installations can share them"`

	Sets           []string      `envconfig:"RSHUB_SETS" desc:"the only sets that take changes, by comma; empty: the first publish to a set makes it"`
	NoPushSets     []string      `envconfig:"RSHUB_NO_PUSH_SETS" desc:"sets whose Capability List does not name the push channel, for clients that stumble over it"`
	ChangeListSize int           `envconfig:"RSHUB_CHANGELIST_SIZE" default:"10000" desc:"changes in one Change List of a new set, 1 to 25000"`
	RetentionAge   time.Duration `envconfig:"RSHUB_RETENTION_AGE" default:"2160h" desc:"Change Lists older than this are removed; 0: age is no reason; 2160h are 90 days"`
	RetentionCount uint64        `envconfig:"RSHUB_RETENTION_COUNT" default:"0" desc:"Change Lists beyond this many changes of a set are removed; 0: count is no reason"`

	TokensFile string   `envconfig:"RSHUB_TOKENS_FILE" desc:"file with the digests and rights of tokens, see rshub token"`
	Insecure   string   `envconfig:"RSHUB_INSECURE" desc:"anyone-may-publish: listen beyond loopback without tokens"`
	Origins    []string `envconfig:"RSHUB_ORIGINS" desc:"origins whose pages may use the hub, by comma, such as https://example.org; *: all"`

	CallbackAllow    networks      `envconfig:"RSHUB_CALLBACK_ALLOW" desc:"networks (CIDR, by comma) that callbacks may lead to besides public addresses, such as 10.0.0.0/8"`
	CallbackPorts    ports         `envconfig:"RSHUB_CALLBACK_PORTS" desc:"ports that callbacks may have, by comma; default 80, 443 and from 1024 on"`
	CallbackCA       string        `envconfig:"RSHUB_CALLBACK_CA_FILE" desc:"certificates (PEM) to trust besides the system's, for callbacks"`
	CallbackTimeout  time.Duration `envconfig:"RSHUB_CALLBACK_TIMEOUT" default:"15s" desc:"for one delivery, from the connection to the answer"`
	CallbackInFlight int           `envconfig:"RSHUB_CALLBACK_IN_FLIGHT" default:"1024" desc:"requests to callbacks that may be under way at once"`
	CallbackPerHost  int           `envconfig:"RSHUB_CALLBACK_PER_HOST" default:"8" desc:"the same to one host and port"`
	CallbackRequests int           `envconfig:"RSHUB_CALLBACK_REQUESTS" default:"1000" desc:"requests for new subscriptions that are taken in a minute for callbacks at one host, on all its ports"`

	CallbackMaxPerHost    int `envconfig:"RSHUB_CALLBACK_MAX_PER_HOST" default:"10000" desc:"subscriptions with callbacks at one host and port; with several hubs about that many"`
	CallbackMaxPerSet     int `envconfig:"RSHUB_CALLBACK_MAX_PER_SET" default:"100000" desc:"the same to one set"`
	CallbackMaxUnverified int `envconfig:"RSHUB_CALLBACK_MAX_UNVERIFIED" default:"1000" desc:"the same for callbacks of one host and port that are still to be asked"`

	LeaseMin     time.Duration `envconfig:"RSHUB_LEASE_MIN" default:"300s" desc:"shortest lease of a WebSub subscription"`
	LeaseDefault time.Duration `envconfig:"RSHUB_LEASE_DEFAULT" default:"240h" desc:"lease of who asks for none"`
	LeaseMax     time.Duration `envconfig:"RSHUB_LEASE_MAX" default:"744h" desc:"longest lease; 744h are 31 days"`

	MaxBody      size          `envconfig:"RSHUB_MAX_BODY" default:"50MiB" desc:"largest publish, before and after decompression; a stream of NDJSON as a whole has no limit"`
	Heartbeat    time.Duration `envconfig:"RSHUB_HEARTBEAT" default:"30s" desc:"between signs of life on a connection that is followed"`
	WriteTimeout time.Duration `envconfig:"RSHUB_WRITE_TIMEOUT" default:"15s" desc:"a client that takes no data for this long is closed"`
	ClockSkew    time.Duration `envconfig:"RSHUB_CLOCK_SKEW" default:"1m" desc:"by how much clocks may differ"`
	StartTimeout time.Duration `envconfig:"RSHUB_START_TIMEOUT" default:"1m" desc:"how long a start waits for Redis"`
	DrainDelay   time.Duration `envconfig:"RSHUB_DRAIN_DELAY" default:"0s" desc:"how long a hub that is told to stop goes on, and is not ready, so that balancers notice; then RSHUB_GRACE begins"`
	Grace        time.Duration `envconfig:"RSHUB_GRACE" default:"25s" desc:"for closing connections when the hub is told to stop"`
	LogLevel     slog.Level    `envconfig:"RSHUB_LOG_LEVEL" default:"info" desc:"debug, info, warn or error"`
}

// size is a number of bytes, written with or without a unit: 1024, 64KiB, 50MB.
type size uint64

var units = []struct {
	name  string
	bytes uint64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

func (s *size) Decode(text string) error {
	for _, u := range units {
		number, ok := strings.CutSuffix(strings.TrimSpace(text), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err != nil || n > 1<<62/u.bytes {
			break
		}
		*s = size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is no size: write bytes, or a number with KiB, MiB or GiB", text)
}

// networks are CIDRs, by comma.
type networks []netip.Prefix

func (n *networks) Decode(text string) error {
	for _, part := range parts(text) {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return err
		}
		if p.Addr().Is4In6() { // such addresses count as IPv4, so it would never hold one
			return fmt.Errorf("%s is IPv4 within IPv6: write it as IPv4", p)
		}
		*n = append(*n, p)
	}
	return nil
}

// ports are numbers of ports, by comma.
type ports []uint16

func (p *ports) Decode(text string) error {
	for _, part := range parts(text) {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is no port: it is a number from 1 to 65535", part)
		}
		*p = append(*p, uint16(n))
	}
	return nil
}

// parts are what commas separate, without blanks around it; of nothing there are
// none.
func parts(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	all := strings.Split(text, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// memory says in a few words where the change memory is.
func (c *config) memory() string {
	if c.RedisURL != "" {
		return "Redis, keys begin with " + c.Prefix
	}
	return c.Data
}

// problems is what is wrong with the configuration, all of it.
type problems struct {
	errs       []error
	unreadable map[string]bool // variables that have no value to be checked
}

// add adds what is wrong with a variable.
func (p *problems) add(name, format string, args ...any) {
	if !p.unreadable[name] {
		p.errs = append(p.errs, fmt.Errorf(name+" "+format, args...))
	}
}

// readConfig reads and checks the environment, and reports every problem at
// once.
func readConfig() (*config, error) {
	var c config
	p := &problems{unreadable: map[string]bool{}}
	c.read(p)
	c.checkAddresses(p)
	checkSets(p, "RSHUB_SETS", c.Sets)
	checkSets(p, "RSHUB_NO_PUSH_SETS", c.NoPushSets)
	if c.ChangeListSize < 1 || c.ChangeListSize > changelog.MaxListSize {
		p.add("RSHUB_CHANGELIST_SIZE", "is %d; it is 1 to %d", c.ChangeListSize, changelog.MaxListSize)
	}
	if c.Insecure != "" && c.Insecure != insecure {
		p.add("RSHUB_INSECURE", "is %q; the only value is %s", c.Insecure, insecure)
	}
	if c.MaxBody < 1<<10 || c.MaxBody > 1<<40 {
		p.add("RSHUB_MAX_BODY", "is %d bytes; it is 1KiB to 1TiB", c.MaxBody)
	}
	for i, o := range c.Origins {
		o = strings.ToLower(strings.TrimSpace(o)) // as browsers write them
		c.Origins[i] = o
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Host == "" || u.Scheme+"://"+u.Host != o) {
			p.add("RSHUB_ORIGINS", "has %q, which is no origin such as https://example.org", o)
		}
	}
	for _, d := range []struct {
		name         string
		value, least time.Duration
	}{
		{"RSHUB_RETENTION_AGE", c.RetentionAge, 0}, {"RSHUB_HEARTBEAT", c.Heartbeat, time.Second},
		{"RSHUB_WRITE_TIMEOUT", c.WriteTimeout, 100 * time.Millisecond},
		{"RSHUB_CLOCK_SKEW", c.ClockSkew, time.Second}, {"RSHUB_START_TIMEOUT", c.StartTimeout, time.Millisecond}, {"RSHUB_DRAIN_DELAY", c.DrainDelay, 0}, {"RSHUB_GRACE", c.Grace, 0},
		{"RSHUB_CALLBACK_TIMEOUT", c.CallbackTimeout, 100 * time.Millisecond}, {"RSHUB_LEASE_MIN", c.LeaseMin, time.Second},
		{"RSHUB_LEASE_DEFAULT", c.LeaseDefault, c.LeaseMin}, {"RSHUB_LEASE_MAX", c.LeaseMax, c.LeaseDefault},
		{"RSHUB_REDIS_TIMEOUT", c.RedisTimeout, 100 * time.Millisecond}, {"RSHUB_REDIS_WAIT_TIMEOUT", c.RedisWaitTimeout, time.Millisecond},
	} {
		if d.value < d.least {
			p.add(d.name, "is %v; it is at least %v", d.value, d.least)
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"RSHUB_CALLBACK_IN_FLIGHT", c.CallbackInFlight}, {"RSHUB_CALLBACK_PER_HOST", c.CallbackPerHost}, {"RSHUB_CALLBACK_REQUESTS", c.CallbackRequests},
		{"RSHUB_CALLBACK_MAX_PER_HOST", c.CallbackMaxPerHost}, {"RSHUB_CALLBACK_MAX_PER_SET", c.CallbackMaxPerSet}, {"RSHUB_CALLBACK_MAX_UNVERIFIED", c.CallbackMaxUnverified}} {
		if n.value < 1 {
			p.add(n.name, "is %d; it is at least 1", n.value)
		}
	}
	return &c, errors.Join(p.errs...)
}

// read reads each variable by itself: envconfig stops at the first one that it
// cannot read.
func (c *config) read(p *problems) {
	fields := reflect.ValueOf(c).Elem()
	for i := range fields.NumField() {
		alone := reflect.New(reflect.StructOf([]reflect.StructField{fields.Type().Field(i)}))
		err := envconfig.Process("", alone.Interface())
		if e, ok := errors.AsType[*envconfig.ParseError](err); ok {
			p.add(e.KeyName, "is %q: %w", e.Value, e.Err)
			p.unreadable[e.KeyName] = true
		} else if err != nil {
			p.errs = append(p.errs, err)
		}
		fields.Field(i).Set(alone.Elem().Field(0))
	}
}

// checkSets checks, and trims, names of sets.
func checkSets(p *problems, name string, sets []string) {
	for i, set := range sets {
		sets[i] = strings.TrimSpace(set)
		if err := changelog.CheckSet(sets[i]); err != nil {
			p.add(name, "has a name that is none: %w", err)
		}
	}
}

// insecure is what RSHUB_INSECURE has to say in as many words.
const insecure = "anyone-may-publish"

// checkAddresses checks where the hub listens against who may then reach it.
func (c *config) checkAddresses(p *problems) {
	open := c.TokensFile == "" && c.Insecure != insecure
	switch host, _, err := net.SplitHostPort(c.Listen); {
	case err != nil:
		p.add("RSHUB_LISTEN", "is %q; it is HOST:PORT: %w", c.Listen, err)
	case !loopback(host):
		if open {
			p.add("RSHUB_LISTEN", "is %s, beyond loopback, and there are no tokens, so anyone could publish: set RSHUB_TOKENS_FILE (rshub token new makes one), or RSHUB_INSECURE=%s", c.Listen, insecure)
		}
		if c.BaseURL == "" {
			p.add("RSHUB_LISTEN", "is %s, beyond loopback: set RSHUB_BASE_URL to the URL that others reach the hub by", c.Listen)
		}
	}
	if c.OpsListen != "" {
		switch host, _, err := net.SplitHostPort(c.OpsListen); {
		case err != nil:
			p.add("RSHUB_OPS_LISTEN", "is %q; it is HOST:PORT: %w", c.OpsListen, err)
		case !loopback(host) && open:
			p.add("RSHUB_OPS_LISTEN", "is %s, beyond loopback, and there are no tokens, so anyone could read a backup: set RSHUB_TOKENS_FILE, or RSHUB_INSECURE=%s", c.OpsListen, insecure)
		}
	}
	if c.BaseURL == "" && c.RedisURL != "" {
		p.add("RSHUB_REDIS_URL", "makes this one of several hubs: set RSHUB_BASE_URL to the URL that others reach them by")
	}
	if c.NATSURL != "" && c.RedisURL == "" {
		p.add("RSHUB_NATS_URL", "announces to other hubs, which there are only with RSHUB_REDIS_URL")
	}
	if c.RedisWait < 0 || c.RedisWait > 0 && c.RedisURL == "" {
		p.add("RSHUB_REDIS_WAIT", "is %d; it is a number of replicas of RSHUB_REDIS_URL", c.RedisWait)
	}
	if (c.NATSCA != "" || c.NATSCreds != "") && c.NATSURL == "" {
		p.errs = append(p.errs, errors.New("RSHUB_NATS_CA_FILE and RSHUB_NATS_CREDENTIALS are for RSHUB_NATS_URL, which is not set"))
	}
	if !prefixForm.MatchString(c.Prefix) {
		p.add("RSHUB_PREFIX", "is %q; it is 1 to 40 of a-z, A-Z, 0-9, hyphen and underscore", c.Prefix)
	}
	if c.BaseURL == "" {
		return
	}
	switch u, err := url.Parse(c.BaseURL); {
	case err == nil && u.User != nil:
		p.add("RSHUB_BASE_URL", "has a user or a password in it; it is a URL such as https://hub.example.org")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		p.add("RSHUB_BASE_URL", "is %q; it is a URL such as https://hub.example.org", c.BaseURL)
	default:
		c.BaseURL = strings.TrimRight(u.String(), "/")
	}
}

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// loopback reports whether a host that is listened on can be reached from this
// machine only. A name is not looked up: it may change.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

var serviceLink = regexp.MustCompile(`_PORT_[0-9]+_`)

// unknownVariables returns the variables that begin like rshub's and mean
// nothing to it: probably misspelt.
func unknownVariables() []string {
	known := map[string]bool{"RSHUB_TOKEN": true} // of rshub backup
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		known[f.Tag.Get("envconfig")] = true
	}
	var unknown []string
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case !strings.HasPrefix(name, "RSHUB_") || known[name]:
		case strings.Contains(name, "_SERVICE_"), serviceLink.MatchString(name), strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://"):
			// Kubernetes sets these for every service whose name begins with rshub.
		default:
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// printVariables explains every variable.
func printVariables(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	const row = "{{range .}}  {{usage_key .}}\t{{usage_default .}}\t{{usage_description .}}\n{{end}}"
	if err := envconfig.Usagef("", &config{}, t, "  VARIABLE\tDEFAULT\tMEANING\n"+row); err != nil {
		return err
	}
	return t.Flush()
}
