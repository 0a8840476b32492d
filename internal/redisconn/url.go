package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errUnescaped is the only error for a URL in which any part may belong to the password.
var errUnescaped = errors.New("invalid URL; check that special characters in the user and the password are escaped as %XX")

// WithoutSecret returns the scheme, the hosts and the path of a URL, or its scheme alone if the
// rest may contain a part of the password.
func WithoutSecret(url string) string {
	scheme, _, hosts, rest, sure := splitURL(url)
	if !sure {
		return scheme + "://"
	}
	path, _, _ := strings.Cut(rest, "?")
	return scheme + "://" + hosts + path
}

// splitURL returns the parts of a URL. sure is false if the rest contains an @: a /, ? or # in the
// password may have ended the hosts.
func splitURL(url string) (scheme, user, hosts, rest string, sure bool) {
	scheme, rest, _ = strings.Cut(url, "://")
	end := strings.IndexAny(rest+"/", "/?#")
	hosts, rest = rest[:end], rest[end:]
	i := strings.LastIndexByte(hosts, '@') + 1
	return scheme, hosts[:i], hosts[i:], rest, !strings.Contains(rest, "@")
}

// parseURL parses a URL, see Open. The error contains no secret.
func parseURL(text string) (o *redis.UniversalOptions, err error) {
	if !strings.Contains(text, "://") {
		return nil, errors.New("invalid URL; want a URL such as redis://localhost:6379")
	}
	scheme, user, hosts, rest, sure := splitURL(text)
	o = &redis.UniversalOptions{}
	secure, sentinel := false, false
	switch scheme {
	case "redis", "unix":
	case "rediss":
		secure = true
	case "redis-sentinel":
		sentinel = true
	case "rediss-sentinel":
		secure, sentinel = true, true
	default:
		return nil, fmt.Errorf("invalid scheme %q; use redis, rediss, unix, redis-sentinel or rediss-sentinel", scheme)
	}
	defer func() {
		if err != nil && !sure {
			err = errUnescaped
		}
	}()
	// net/url does not accept several hosts.
	u, err := url.Parse(scheme + "://" + user + "host" + rest)
	if err != nil {
		return nil, errUnescaped
	}
	if u.Fragment != "" {
		return nil, errors.New("fragments are not allowed; write # in a password as %23")
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	if scheme == "unix" {
		if hosts != "" || u.Path == "" {
			return nil, errors.New("invalid unix URL; want unix:///path/of/the/socket")
		}
		o.Addrs = []string{u.Path} // go-redis knows a path by its slash
		return o, parseQuery(o, u, nil)
	}
	port := "6379"
	if sentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := parseAddress(strings.TrimSpace(host), port)
		if err != nil {
			return nil, err
		}
		o.Addrs = append(o.Addrs, addr)
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		if o.DB, err = strconv.Atoi(db); err != nil || o.DB < 0 {
			return nil, fmt.Errorf("invalid database number in path %q", u.Path)
		}
	}
	if secure {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := parseQuery(o, u, o.TLSConfig); err != nil {
		return nil, err
	}
	if sentinel != (o.MasterName != "") {
		return nil, errors.New("?master=NAME is required in a redis-sentinel URL and not allowed in any other")
	}
	if !sentinel && (len(o.Addrs) > 1 || o.IsClusterMode) && o.DB != 0 {
		return nil, fmt.Errorf("a Redis Cluster has no database %d", o.DB)
	}
	return o, nil
}

// parseAddress parses host, host:port, [v6] or [v6]:port.
func parseAddress(s, port string) (string, error) {
	if host, p, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 || host == "" {
			return "", fmt.Errorf("invalid host and port %q", s)
		}
		return s, nil
	}
	host := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if host == "" || strings.ContainsAny(host, "[] ") || strings.Contains(host, ":") && host == s {
		return "", fmt.Errorf("invalid host %q; want host, host:port or [address]:port, separated by commas", s)
	}
	return net.JoinHostPort(host, port), nil
}

// parseQuery parses the options in a URL's query.
func parseQuery(o *redis.UniversalOptions, u *url.URL, secure *tls.Config) error {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("invalid query after the question mark")
	}
	for name, v := range values {
		value := v[len(v)-1]
		switch name {
		case "master", "master_name":
			o.MasterName = value
		case "client_name":
			o.ClientName = value
		case "sentinel_username":
			o.SentinelUsername = value
		case "sentinel_password":
			o.SentinelPassword = value
		case "cluster":
			if o.IsClusterMode, err = strconv.ParseBool(value); err != nil {
				return errors.New("cluster must be true or false")
			}
		case "db":
			if o.DB, err = strconv.Atoi(value); err != nil || o.DB < 0 {
				return errors.New("db is not a database number")
			}
		case "ca_file":
			if secure == nil {
				return errors.New("ca_file requires TLS; use rediss")
			}
			if secure.RootCAs, err = readCA(value); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unknown option %q; want ca_file, client_name, cluster, db, master, sentinel_username or sentinel_password", name)
		}
	}
	return nil
}

func readCA(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read ca_file %s: no certificate found", path)
	}
	return pool, nil
}
