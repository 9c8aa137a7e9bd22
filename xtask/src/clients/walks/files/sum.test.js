const sum = require('./sum');
test('sum', () => expect(sum(1, 2)).toBe(3));
test('shape', () => expect({ sum: sum(2, 2) }).toMatchSnapshot());
