// Package browser drives a headless Chromium in tests.
package browser

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// Start starts a headless Chromium, which stops with the test. Open opens pages in it.
func Start(t *testing.T) context.Context {
	t.Helper()
	if os.Getenv("RSHUB_E2E_NO_BROWSER") != "" {
		t.Skip("RSHUB_E2E_NO_BROWSER is set")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("Chromium is not installed: apt-get install chromium (or set RSHUB_E2E_NO_BROWSER=1 to skip)")
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(hubtest.Timeout),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("no-proxy-server", true),
	)
	t.Cleanup(cancel)
	return ctx
}

// Evaluate evaluates JavaScript in a page.
func Evaluate[T any](t *testing.T, page context.Context, script string, opts ...chromedp.EvaluateOption) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(page, hubtest.Timeout)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, opts...))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return v
}

// Open opens a page in a new tab of a browser, or of the browser of another tab. The tab stays
// open until the test ends.
func Open(t *testing.T, browser context.Context, url string) (tab context.Context) {
	t.Helper()
	tab, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	if err := chromedp.Do(tab); err != nil { // starts the browser, which runs until this context is canceled
		t.Fatalf("start Chromium: %v", err)
	}
	ctx, cancel := context.WithTimeout(tab, hubtest.Timeout)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil {
		t.Fatalf("open the page: %v", err)
	}
	return tab
}
