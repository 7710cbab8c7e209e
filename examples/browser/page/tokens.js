// BERT's tokens: lower case without accents, words and punctuation, then the longest pieces of the vocabulary.

/** Most tokens of a sentence, as the model was trained. */
const MOST = 128;
/** Characters of a word above which it is unknown. */
const LONGEST = 100;

export class Tokenizer {
  #vocabulary;

  /** Reads a `tokenizer.json`. */
  constructor(text) {
    const vocabulary = JSON.parse(text)?.model?.vocab;
    if (typeof vocabulary?.["[CLS]"] !== "number") throw new Error("the tokenizer has no vocabulary of BERT");
    this.#vocabulary = new Map(Object.entries(vocabulary));
  }

  /** Token ids, between a start and an end. */
  encode(sentence) {
    const pieces = words(sentence).flatMap((word) => this.#pieces(word));
    const ids = pieces.slice(0, MOST - 2).map((piece) => this.#vocabulary.get(piece));
    return [this.#vocabulary.get("[CLS]"), ...ids, this.#vocabulary.get("[SEP]")];
  }

  #pieces(word) {
    const letters = [...word];
    if (letters.length > LONGEST) return ["[UNK]"];
    const found = [];
    for (let start = 0; start < letters.length; ) {
      let end = letters.length;
      const piece = () => (start ? "##" : "") + letters.slice(start, end).join("");
      while (end > start && !this.#vocabulary.has(piece())) end--;
      if (end === start) return ["[UNK]"];
      found.push(piece());
      start = end;
    }
    return found;
  }
}

function words(sentence) {
  const clean = sentence.replace(/[\p{Cc}\p{Cf}\uFFFD]/gu, (letter) => (/\s/.test(letter) ? " " : ""));
  const plain = clean.toLowerCase().normalize("NFD").replace(/\p{Mn}/gu, "");
  // Punctuation, BERT's other marks and ideographs are words of their own.
  return plain.match(/[\p{P}$+<=>^`|~]|\p{Script=Han}|[^\s\p{P}$+<=>^`|~\p{Script=Han}]+/gu) ?? [];
}

/** Sentences of one length, padded with 0, as flat ids. */
export function batch(sentences) {
  const tokens = Math.max(...sentences.map((ids) => ids.length));
  const padded = sentences.map((ids) => [...ids, ...Array(tokens - ids.length).fill(0)]);
  return { ids: padded.flat(), tokens };
}
