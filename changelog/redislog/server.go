package redislog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/changelog"
)

// fit returns nil when every server may be written to: it does not evict. What
// it finds holds for Append until the next look. first also tells what is wrong
// with a server that is taken nevertheless.
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

// fitByNow is fit, if nobody looked within the last minute.
func (l *Log) fitByNow(ctx context.Context) error {
	if age := l.opts.Now().UnixMicro() - l.checked.Load(); age < time.Minute.Microseconds() && age >= 0 {
		return l.refused()
	}
	return l.fit(ctx, false)
}

// refused returns why nothing may be written, as far as known.
func (l *Log) refused() error {
	if err := l.unfit.Load(); err != nil {
		return *err
	}
	return nil
}

// MayPass reports whether an error of Open is that Redis cannot be reached or is
// not ready yet, so that trying again makes sense. It does not where Redis refuses
// the credentials, or cannot keep a memory as it is set up.
func MayPass(err error) bool {
	return errors.Is(err, changelog.ErrUnavailable) && !errors.Is(err, errUnfit) && !starts(err, "NOAUTH", "WRONGPASS", "NOPERM")
}

var errUnfit = fmt.Errorf("%w: this Redis cannot keep it", changelog.ErrUnavailable)

func (l *Log) look(ctx context.Context, first bool) error {
	return l.read(ctx, func(ctx context.Context) error {
		if cluster, ok := l.client.(*redis.ClusterClient); ok {
			return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
				return l.lookAt(ctx, node, first)
			})
		}
		return l.lookAt(ctx, l.client, first)
	})
}

// lookAt looks at one server. INFO knows what CONFIG does, and is forbidden less
// often.
func (l *Log) lookAt(ctx context.Context, node redis.Cmdable, first bool) error {
	text, err := node.Info(ctx).Result()
	if starts(err, "NOPERM") || err != nil && strings.Contains(strings.ToLower(err.Error()), "unknown command 'info'") {
		if l.opts.AllowEviction {
			return nil
		}
		return refuse("%w: it does not say whether it evicts keys (%v); allow the user INFO, or allow eviction", errUnfit, err)
	}
	if err != nil {
		return err
	}
	info := parseInfo(text)
	if v := info["redis_version"]; v != "" && olderThan62(v) {
		return refuse("%w: it is version %s, and 6.2 is needed", errUnfit, v)
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		if !l.opts.AllowEviction {
			return refuse("%w: it may evict keys (its maxmemory-policy is %q): set maxmemory-policy to noeviction", errUnfit, policy)
		}
		if first {
			l.opts.Logger.Warn("Redis may evict the change memory: maxmemory-policy should be noeviction", "policy", policy)
		}
	}
	if first && info["aof_enabled"] == "0" {
		l.opts.Logger.Warn("Redis has no append-only file: a crash of Redis loses changes that were accepted; set appendonly yes")
	}
	return nil
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
