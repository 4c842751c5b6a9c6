package wire

import "strings"

// ParseOptions reads the parameter "options": the switches -c name=value, -cname=value and --name=value, separated by blanks;
// a backslash takes the character behind it as it is.
func ParseOptions(options string) ([]Setting, error) {
	words := splitOptions(options)
	var settings []Setting
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "-c":
			i++
			if i == len(words) {
				return nil, badOption(word)
			}
			word = words[i]
		case strings.HasPrefix(word, "-c"), strings.HasPrefix(word, "--") && len(word) > 2:
			word = word[2:]
		default:
			return nil, badOption(word)
		}
		name, value, ok := strings.Cut(word, "=")
		if !ok || name == "" {
			return nil, Fatalf(CodeSyntaxError, "-c %s requires a value", word)
		}
		settings = append(settings, Setting{strings.ReplaceAll(name, "-", "_"), value})
	}
	return settings, nil
}

func badOption(word string) error {
	return Fatalf(CodeSyntaxError, "invalid command-line argument for server process: %s", word)
}

func splitOptions(s string) []string {
	var words []string
	var word strings.Builder
	inside, escaped := false, false
	for _, c := range []byte(s) {
		switch {
		case escaped:
			word.WriteByte(c)
			escaped = false
		case c == '\\':
			inside, escaped = true, true
		case c == ' ' || c >= '\t' && c <= '\r':
			if inside {
				words = append(words, word.String())
				word.Reset()
			}
			inside = false
		default:
			word.WriteByte(c)
			inside = true
		}
	}
	if inside {
		words = append(words, word.String())
	}
	return words
}
