package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/backup"
	"github.com/rshub/rshub/internal/outbound"
)

// healthTimeout bounds a health check. It must be shorter than the timeouts of container
// engines.
const healthTimeout = 4 * time.Second

// checkHealth returns nil if the hub on this machine reports that it is ready. It ignores errors
// of the configuration, because the hub itself reports them.
func checkHealth(ctx context.Context, args []string, stdout io.Writer) error {
	if err := rejectArguments(args); err != nil {
		return err
	}
	var c config
	c.read(&configErrors{unparsed: map[string]bool{}})
	if c.OpsListen == "" {
		return usageError("RSHUB_OPS_LISTEN is empty, so the hub does not serve /readyz")
	}
	address, err := backup.OpsAddress(c.OpsListen)
	if err != nil {
		return withVariableNames(err)
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("RSHUB_OPS_LISTEN: invalid value %q: %w", c.OpsListen, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy, because the hub is on this machine
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("query hub at %s: %w", address, outbound.Explain(err))
	}
	defer resp.Body.Close()
	var answer struct {
		Ready  bool
		Checks map[string]struct {
			OK     bool
			Reason string
		}
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&answer); err != nil {
		return fmt.Errorf("server at %s is not a hub: /readyz returned status %d without JSON", address, resp.StatusCode)
	}
	if resp.StatusCode == http.StatusOK && answer.Ready {
		fmt.Fprintln(stdout, "ready")
		return nil
	}
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(answer.Checks)) {
		if check := answer.Checks[name]; !check.OK {
			reasons = append(reasons, name+": "+check.Reason)
		}
	}
	return fmt.Errorf("hub is not ready: %s", strings.Join(reasons, "; "))
}
