package main

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil/tabletest"
)

func TestDefaults(t *testing.T) {
	setenv(t)
	c, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:8080" || c.OpsListen != "127.0.0.1:8081" || c.Data != "./rshub-data" || c.BaseURL != "" {
		t.Errorf("default addresses and paths: %+v", c)
	}
	if c.ChangeListSize != 10_000 || c.DiskReserve != 64<<20 || c.MaxBody != 50<<20 || c.LogLevel != slog.LevelInfo {
		t.Errorf("default sizes and level: %+v", c)
	}
}

func TestConfig(t *testing.T) {
	setenv(t, "RSHUB_LISTEN", "0.0.0.0:80", "RSHUB_BASE_URL", "https://Hub.bücher.example/rs//", "RSHUB_INSECURE", insecure,
		"RSHUB_OPS_LISTEN", "", "RSHUB_SETS", "a, b", "RSHUB_ORIGINS", "https://Example.org,*", "RSHUB_MAX_BODY", "2MiB", "RSHUB_LOG_LEVEL", "debug",
		"RSHUB_CALLBACK_ALLOW", "127.0.0.0/8, 10.0.0.0/8",
		// Variables without the prefix belong to other programs.
		"DATA", "/tmp/other", "GRACE", "nonsense", "LOG_LEVEL", "nonsense", "TOKENS_FILE", "other")
	c, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	if c.BaseURL != "https://hub.xn--bcher-kva.example/rs" || c.OpsListen != "" || !slices.Equal(c.Sets, []string{"a", "b"}) || !slices.Equal(c.Origins, []string{"https://example.org", "*"}) {
		t.Errorf("readConfig() = %+v", c)
	}
	if fmt.Sprint(c.CallbackAllow) != "[127.0.0.0/8 10.0.0.0/8]" {
		t.Errorf("CallbackAllow = %v, want two networks", c.CallbackAllow)
	}
	if c.MaxBody != 2<<20 || c.LogLevel != slog.LevelDebug || c.Data != "./rshub-data" || c.Grace != 25*time.Second || c.TokensFile != "" {
		t.Errorf("readConfig() = %+v", c)
	}
}

func TestConfigProblems(t *testing.T) {
	for _, test := range []struct {
		name      string
		variables []string
		want      []string // substring of each error, in order
	}{
		{"all at once", []string{"RSHUB_LISTEN", "here", "RSHUB_OPS_LISTEN", "there", "RSHUB_HEARTBEAT", "often", "RSHUB_CHANGELIST_SIZE", "many",
			"RSHUB_SETS", "a,B", "RSHUB_DESCRIBED_BY", "about", "RSHUB_INSECURE", "yes", "RSHUB_LOG_LEVEL", "loud", "RSHUB_DISK_RESERVE", "1 apple"},
			[]string{`RSHUB_CHANGELIST_SIZE: invalid value "many"`, `RSHUB_DISK_RESERVE: invalid value "1 apple"`, `RSHUB_HEARTBEAT: invalid value "often"`, `RSHUB_LOG_LEVEL: invalid value "loud"`,
				`RSHUB_LISTEN: got "here"`, `RSHUB_OPS_LISTEN: got "there"`, `RSHUB_SETS: invalid set name "B"`, `RSHUB_DESCRIBED_BY: got "about"`, `RSHUB_INSECURE: got "yes"`}},
		{"list size", []string{"RSHUB_CHANGELIST_SIZE", "25001"}, []string{"RSHUB_CHANGELIST_SIZE: got 25001, want 1 to 25000"}},
		{"zero list size", []string{"RSHUB_CHANGELIST_SIZE", "0"}, []string{"RSHUB_CHANGELIST_SIZE: got 0"}},
		{"durations", []string{"RSHUB_RETENTION_AGE", "-1h", "RSHUB_HEARTBEAT", "1ms", "RSHUB_LEASE_MIN", "1ms", "RSHUB_WRITE_TIMEOUT", "0", "RSHUB_GRACE", "-1s"},
			[]string{"RSHUB_RETENTION_AGE: got -1h", "RSHUB_HEARTBEAT: got 1ms", "RSHUB_WRITE_TIMEOUT: got 0s", "RSHUB_GRACE: got -1s", "RSHUB_LEASE_MIN: got 1ms, want at least 1s"}},
		{"body size", []string{"RSHUB_MAX_BODY", "1"}, []string{"RSHUB_MAX_BODY: got 1 bytes"}},
		{"origins", []string{"RSHUB_ORIGINS", "example.org,https://example.org/,null"}, []string{`"example.org"`, `"https://example.org/"`, `"null"`}},

		{"beyond loopback", []string{"RSHUB_LISTEN", "0.0.0.0:8080"}, []string{"RSHUB_INSECURE=anyone-may-publish", "set RSHUB_BASE_URL"}},
		{"all addresses", []string{"RSHUB_LISTEN", ":8080"}, []string{"RSHUB_TOKENS_FILE", "set RSHUB_BASE_URL"}},
		{"host name", []string{"RSHUB_LISTEN", "hub.example.org:8080", "RSHUB_BASE_URL", "http://hub.example.org"}, []string{"not a loopback address"}},
		{"IPv6", []string{"RSHUB_LISTEN", "[::]:8080", "RSHUB_BASE_URL", "http://hub.example.org"}, []string{"not a loopback address"}},
		{"with tokens", []string{"RSHUB_LISTEN", ":8080", "RSHUB_TOKENS_FILE", "x"}, []string{"set RSHUB_BASE_URL"}},
		{"insecure", []string{"RSHUB_LISTEN", ":8080", "RSHUB_INSECURE", insecure, "RSHUB_BASE_URL", "http://hub.example.org"}, nil},
		{"wrong value of insecure", []string{"RSHUB_LISTEN", ":8080", "RSHUB_INSECURE", "true", "RSHUB_BASE_URL", "http://hub.example.org"}, []string{"anyone could publish", "RSHUB_INSECURE: got"}},
		{"loopback", []string{"RSHUB_LISTEN", "[::1]:8080", "RSHUB_OPS_LISTEN", "localhost:1"}, nil},
		{"all of 127", []string{"RSHUB_LISTEN", "127.3.2.1:8080"}, nil},
		{"operations beyond loopback", []string{"RSHUB_OPS_LISTEN", ":8081"}, []string{"anyone could read a backup"}},

		{"callbacks", []string{"RSHUB_CALLBACK_ALLOW", "::ffff:10.0.0.0/104"},
			[]string{`RSHUB_CALLBACK_ALLOW: invalid value "::ffff:10.0.0.0/104": ::ffff:10.0.0.0/104 is an IPv4-mapped IPv6 network; write it as IPv4`}},
		{"invalid networks", []string{"RSHUB_CALLBACK_ALLOW", "127.0.0.0/8 10.0.0.0/8"}, []string{"RSHUB_CALLBACK_ALLOW: invalid value"}},

		{"Redis", []string{"RSHUB_REDIS_WAIT", "1", "RSHUB_REDIS_TIMEOUT", "1ms"},
			[]string{"RSHUB_REDIS_WAIT: got 1", "RSHUB_REDIS_TIMEOUT: got 1ms"}},
		{"NATS", []string{"RSHUB_NATS_CA_FILE", "ca.pem"}, []string{"RSHUB_NATS_CA_FILE"}},

		{"base URL", []string{"RSHUB_BASE_URL", "hub.example.org"}, []string{`RSHUB_BASE_URL: got "hub.example.org"`}},
		{"base URL with wrong scheme", []string{"RSHUB_BASE_URL", "ftp://hub.example.org"}, []string{"RSHUB_BASE_URL: got"}},
		{"base URL with query", []string{"RSHUB_BASE_URL", "https://hub.example.org/?a"}, []string{"RSHUB_BASE_URL: got"}},
		{"base URL with password", []string{"RSHUB_BASE_URL", "https://me:secret@hub.example.org"}, []string{"RSHUB_BASE_URL: want a URL such as https://hub.example.org, without user and password"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			setenv(t, test.variables...)
			_, err := readConfig()
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(test.want) {
				t.Fatalf("readConfig() returned %d errors, want %d:\n%v", len(got), len(test.want), err)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], "RSHUB_") || !strings.Contains(got[i], want) || strings.Contains(got[i], "secret") {
					t.Errorf("error %d = %q, want %q", i+1, got[i], want)
				}
			}
		})
	}
}

// TestListVariables parses each variable that is a list, with blanks around an entry and with an
// empty entry. A new list variable needs a row.
func TestListVariables(t *testing.T) {
	rows := map[string][2]string{ // two entries of each list
		"RSHUB_HOSTS":           {"a.example.org", "b.example.org"},
		"RSHUB_ORIGINS":         {"https://a.example.org", "https://b.example.org"},
		"RSHUB_TRUSTED_PROXIES": {"10.0.0.0/8", "192.168.0.0/16"},
		"RSHUB_SETS":            {"a", "b"},
		"RSHUB_JWT_AUDIENCE":    {"https://a.example.org", "https://b.example.org"},
		"RSHUB_LIMITS_CALLER":   {"publishes:1/s", "sets:2/h"},
		"RSHUB_LIMITS_ADDRESS":  {"publishes:1/s", "sets:2/h"},
		"RSHUB_CALLBACK_ALLOW":  {"10.0.0.0/8", "192.168.0.0/16"},
	}
	for i, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		name := f.Tag.Get("envconfig")
		row, ok := rows[name]
		if kind := f.Type.Kind(); !ok && (kind == reflect.Slice || kind == reflect.Array) {
			t.Errorf("list variable %s has no row", name)
		}
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			others := []string{"RSHUB_JWT_KEYS", "https://id.example.org/keys", "RSHUB_JWT_ISSUER", "https://id.example.org/", "RSHUB_BASE_URL", "http://127.0.0.1:8080"}
			value := func(text string) (any, error) {
				setenv(t, append(others, name, text)...)
				c, err := readConfig()
				return reflect.ValueOf(c).Elem().Field(i).Interface(), err
			}
			want, err := value(row[0] + "," + row[1])
			if err != nil {
				t.Fatal(err)
			}
			if got, err := value(" " + row[0] + " , " + row[1] + " "); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("value with blanks = %v, %v, want %v", got, err, want)
			}
			for _, text := range []string{row[0] + ",", "," + row[0], row[0] + ", ," + row[1]} {
				if got, err := value(text); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("value of %q = %v, %v, want an error that names %s", text, got, err, name)
				}
			}
		})
	}
}

func TestUnknownVariables(t *testing.T) {
	setenv(t, "RSHUB_LISTEN", "x", "RSHUB_LISTENN", "x", "RSHUB_TOKEN", "x", "RSHUB_REDDIS_URL", "redis://x",
		"RSHUB_CALLBACK_PORT", "443", "RSHUB_PORTS", "80",
		"RSHUB_SERVICE_HOST", "10.0.0.1", "RSHUB_SERVICE_PORT_HTTP", "8080", "RSHUB_PORT", "tcp://10.0.0.1:8080", // Kubernetes sets these
		"RSHUB_PORT_8080_TCP", "tcp://10.0.0.1:8080", "RSHUB_PORT_8080_TCP_PORT", "8080")
	got := unknownVariables()
	slices.Sort(got)
	if !slices.Equal(got, []string{"RSHUB_CALLBACK_PORT", "RSHUB_LISTENN", "RSHUB_PORTS", "RSHUB_REDDIS_URL"}) {
		t.Errorf("unknownVariables() = %v", got)
	}
	_, err := newHub(io.Discard)
	for _, want := range []string{"unknown variable RSHUB_LISTENN; did you mean RSHUB_LISTEN?", "unknown variable RSHUB_REDDIS_URL; did you mean RSHUB_REDIS_URL?"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("newHub() = %v, want %s", err, want)
		}
	}
}

// TestConfigurationTable checks the table of variables in docs/reference.md. With -update, it
// writes the table.
func TestConfigurationTable(t *testing.T) {
	var table strings.Builder
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		if group := f.Tag.Get("group"); group != "" {
			fmt.Fprintf(&table, "\n**%s**\n\n| variable | default | meaning |\n|---|---|---|\n", group)
		}
		value := f.Tag.Get("default")
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", f.Tag.Get("envconfig"), value, tabletest.Cell(f.Tag.Get("desc")))
	}
	tabletest.Check(t, "../../docs/reference.md", "configuration", strings.TrimPrefix(table.String(), "\n"))
}
