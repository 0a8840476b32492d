package page

import (
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func typeInto(selector, text string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(selector, text)
}

func reload() chromedp.Action[chromedp.Void] { return chromedp.Reload() }

// ownerLine returns the first line of a file of tokens.
func ownerLine(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "owner ") {
			return line
		}
	}
	t.Fatalf("no owner in %s", text)
	return ""
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
