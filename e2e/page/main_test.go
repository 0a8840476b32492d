// Package page tests the web page of a hub in a real browser.
package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/rshub/rshub/e2e/internal/browser"
	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// A tab is a tab of a browser that shows the page.
type tab struct {
	context.Context
	t *testing.T
}

// open opens a URL of a hub.
func open(t *testing.T, browserOrTab context.Context, url string) tab {
	t.Helper()
	return tab{browser.Open(t, browserOrTab, url), t}
}

func (b tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b, hubtest.Timeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// goTo opens a URL in the same tab, so that it is still signed in.
func (b tab) goTo(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// key presses a key, such as "\t".
func (b tab) key(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// until waits until a JavaScript expression is true.
func (b tab) until(expression string) {
	b.t.Helper()
	hubtest.Until(b.t, expression, func() error {
		if !browser.Evaluate[bool](b.t, b, "(() => { try { return Boolean("+expression+") } catch { return false } })()") {
			return errors.New("got page: " + browser.Evaluate[string](b.t, b, "String(document.body?.innerText).slice(0, 2000)"))
		}
		return nil
	})
}

// has waits until the main part of the page has a text.
func (b tab) has(text string) {
	b.t.Helper()
	quoted, _ := json.Marshal(text)
	b.until(fmt.Sprintf("document.body?.innerText.includes(%s)", quoted))
}

// focus presses Tab until the focused element matches a selector, as users without a mouse do.
func (b tab) focus(selector string) {
	b.t.Helper()
	quoted, _ := json.Marshal(selector)
	for range 100 {
		b.key("\t")
		if browser.Evaluate[bool](b.t, b, fmt.Sprintf("document.activeElement.matches(%s)", quoted)) {
			return
		}
	}
	b.t.Fatalf("cannot reach %s with Tab", selector)
}

// signIn signs in by keyboard.
func (b tab) signIn(token string) {
	b.t.Helper()
	b.focus("#who button")
	b.key("\r")
	b.until(`document.activeElement.id === "token"`)
	b.key(token + "\r")
}

// A screen is a size and a color scheme in which the page is checked.
type screen struct {
	name   string
	width  int64
	height int64
	scheme string
}

var screens = []screen{
	{"wide-light", 1280, 900, "light"},
	{"wide-dark", 1280, 900, "dark"},
	{"phone-light", 375, 812, "light"},
	{"phone-dark", 375, 812, "dark"},
}

// setScreen shows the page on a screen.
func (b tab) setScreen(s screen) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(s.width, s.height))
	params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.scheme}}}
	if _, err := chromedp.Call(b, emulation.SetEmulatedMedia, params); err != nil {
		b.t.Fatal(err)
	}
}

// axe is the path of axe-core, as installed by tools/scripts/need.
const axe = "node_modules/axe-core/axe.min.js"

// checkView checks a view on all screens: nothing is wider than the screen, axe-core finds no
// violations, and no script has failed.
func (b tab) checkView(view string) {
	b.t.Helper()
	script, err := os.ReadFile(axe)
	if err != nil {
		b.t.Fatalf("axe-core is not installed; run tools/scripts/need: %v", err)
	}
	browser.Evaluate[bool](b.t, b, string(script)+"; true")
	for _, s := range screens {
		b.setScreen(s)
		browser.Evaluate[bool](b.t, b, "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))", chromedp.EvalAwaitPromise)
		if wide := browser.Evaluate[int](b.t, b, "document.documentElement.scrollWidth"); wide > int(s.width) {
			b.t.Errorf("%s on %s: got width of %d pixels; too wide: %v", view, s.name, wide, browser.Evaluate[[]string](b.t, b, fmt.Sprintf(
				"[...document.querySelectorAll('main *, header *, footer *')].filter(e => e.getBoundingClientRect().right > %d).slice(0, 5).map(e => e.outerHTML.slice(0, 120))", s.width)))
		}
		found := browser.Evaluate[[]string](b.t, b, `axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map(n => n.html + " " + (n.any[0]?.message ?? "")).join(" | ")))`, chromedp.EvalAwaitPromise)
		if len(found) > 0 {
			b.t.Errorf("violations in %s on %s:\n%s", view, s.name, strings.Join(found, "\n"))
		}
	}
	b.setScreen(screens[0])
}
