package redislog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// fit returns nil when every server can keep the memory: its version is not too old,
// and it does not evict keys. Append obeys the result until fit is called again. If
// first is true, fit also logs warnings about servers that it accepts.
func (l *Log) fit(ctx context.Context, first bool) error {
	l.checked.Store(l.opts.Now().UnixMicro())
	err := l.look(ctx, first)
	if errors.Is(err, errUnfit) {
		l.unfit.Store(&err)
	} else if err == nil {
		l.unfit.Store(nil)
	}
	return err
}

// fitByNow is fit, except that it returns the last result if that is less than a
// minute old.
func (l *Log) fitByNow(ctx context.Context) error {
	if age := l.opts.Now().UnixMicro() - l.checked.Load(); age < time.Minute.Microseconds() && age >= 0 {
		return l.refused()
	}
	return l.fit(ctx, false)
}

// refused returns why nothing must be written, by the last result of fit.
func (l *Log) refused() error {
	if err := l.unfit.Load(); err != nil {
		return *err
	}
	return nil
}

// MayPass reports whether an error of Open means that Redis cannot be reached or is
// not ready yet. It then makes sense to try again. It makes no sense if Redis refuses
// the credentials, if its certificate is not trusted, or if its settings do not allow a
// memory.
func MayPass(err error) bool {
	return errors.Is(err, feed.ErrUnavailable) && !errors.Is(err, errUnfit) && !redisconn.Denied(err) && !redisconn.Untrusted(err)
}

// clusterSlots is how many slots a Redis Cluster has.
const clusterSlots = 16384

var errUnfit = fmt.Errorf("%w: this Redis cannot keep it", feed.ErrUnavailable)

func (l *Log) look(ctx context.Context, first bool) error {
	return l.read(ctx, func(t *redisconn.Try) error {
		return t.EachMaster(func(t *redisconn.Try) error { return l.lookAt(t, first) })
	})
}

// lookAt looks at one server. It uses INFO and not CONFIG, because fewer
// servers forbid INFO.
func (l *Log) lookAt(t *redisconn.Try, first bool) error {
	text, err := t.Info()
	if redisconn.Forbidden(err) {
		if first {
			l.opts.Logger.Warn("Redis does not say whether it evicts keys, because its user may not ask INFO: make sure that its maxmemory-policy is noeviction", "err", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	info := parseInfo(text)
	if v := info["redis_version"]; v != "" && olderThan62(v) {
		return refuse("%w: it is version %s, and 6.2 is needed", errUnfit, v)
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		return refuse("%w: it may evict keys (its maxmemory-policy is %q): set maxmemory-policy to noeviction", errUnfit, policy)
	}
	if info["cluster_enabled"] == "1" && !l.conn.Cluster() {
		slots, err := t.Slots()
		switch {
		case redisconn.Forbidden(err):
			if first {
				l.opts.Logger.Warn("Redis has cluster mode on, and its user may not ask CLUSTER NODES: if other servers belong to it, add ?cluster=true to its URL", "err", err)
			}
		case err != nil:
			return err
		case slots != clusterSlots:
			return refuse("%w: it is one server of a Redis Cluster and serves %d of %d slots: add ?cluster=true to its URL", errUnfit, slots, clusterSlots)
		}
	}
	if first && info["aof_enabled"] == "0" {
		l.opts.Logger.Warn("Redis has no append-only file: a crash of Redis loses changes that were accepted; set appendonly yes")
	}
	return nil
}

// Memory returns how many bytes of memory Redis uses, and how many it may use at most; 0
// if there is no limit, or if Redis does not say. In a cluster these are the values of
// the server with the least room.
func (l *Log) Memory(ctx context.Context) (used, most uint64, err error) {
	err = l.read(ctx, func(t *redisconn.Try) error {
		used, most = 0, 0
		return t.EachMaster(func(t *redisconn.Try) error {
			text, err := t.Info()
			if redisconn.Forbidden(err) {
				return nil
			}
			if err != nil {
				return err
			}
			info := parseInfo(text)
			u, _ := strconv.ParseUint(info["used_memory"], 10, 64)
			m, _ := strconv.ParseUint(info["maxmemory"], 10, 64)
			if m > 0 && (most == 0 || float64(u)/float64(m) > float64(used)/float64(most)) {
				used, most = u, m
			}
			return nil
		})
	})
	return used, most, err
}

// Kept returns about how many bytes of the memory of Redis a set takes, with its keys and
// the pages of its inventory. Redis measures a few parts, and estimates the rest from
// them. Kept returns 0 if Redis does not say.
func (l *Log) Kept(ctx context.Context, set string) (bytes int64, err error) {
	err = l.read(ctx, func(t *redisconn.Try) (err error) {
		bytes, err = t.MemoryUsage(l.allKeys(set))
		if redisconn.Forbidden(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure set %q: %w", set, err)
	}
	return bytes, nil
}

// parseInfo reads the answer to INFO.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func olderThan62(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	major, err := strconv.Atoi(parts[0])
	if err != nil || len(parts) < 2 {
		return false
	}
	minor, err := strconv.Atoi(parts[1])
	return err == nil && (major < 6 || major == 6 && minor < 2)
}
